# Tables that claim far more than they are.
import blosc2 as b2, numpy as np, json, os, sys
path=sys.argv[1]
if os.path.exists(path): os.remove(path)
s=b2.DictStore(path, mode="w", threshold=0)
def meta(schema):
    m=b2.SChunk(); m.vlmeta["kind"]="ctable"; m.vlmeta["version"]=1; m.vlmeta["schema"]=json.dumps(schema); return m
def big(shape, dtype, value=0, chunks=2**27, blocks=2**20):
    c=min(chunks//np.dtype(dtype).itemsize, shape); bl=min(blocks//np.dtype(dtype).itemsize, c)
    return b2.full(shape, value, dtype=dtype, chunks=(c,), blocks=(bl,)) if value else b2.zeros(shape, dtype=dtype, chunks=(c,), blocks=(bl,))
A={"name":"a","kind":"int64"}
T={"name":"t","kind":"utf8"}
N=2**36
def table(name, columns, marks, n_rows=None, **leaves):
    d={"version":3,"columns":columns}
    if n_rows is not None: d["n_rows"]=n_rows
    s[f"/{name}/_meta"]=meta(d); s[f"/{name}/_valid_rows"]=marks
    for k,v in leaves.items(): s[f"/{name}/_cols/{k.replace('__','.')}"]=v
table("uncounted",[A],big(N,bool,True),a=big(N,"i8"))
table("counted",[A],big(N,bool,True),N,a=big(N,"i8"))
table("none-live",[A],big(N,bool),a=big(N,"i8"))
ends=np.zeros(3,"i8"); ends[1]=2**30; ends[2]=2**31
table("giant-text",[T],b2.asarray(np.ones(2,bool)),2,t=b2.asarray(ends),t__utf8=big(2**32,"u1"))
s.close()
