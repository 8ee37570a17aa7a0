# Writes tests/data/blosc2/stores/lies.b2z: tables of which each lies in one respect.
import blosc2 as b2, numpy as np, json, os, sys
path=sys.argv[1]
if os.path.exists(path): os.remove(path)
s=b2.DictStore(path, mode="w", threshold=0)
def meta(schema, kind="ctable"):
    m=b2.SChunk(); m.vlmeta["kind"]=kind; m.vlmeta["version"]=1; m.vlmeta["schema"]=schema if isinstance(schema,str) else json.dumps(schema); return m
def batch(values):
    a=b2.BatchArray(); a.append(values); return a
def table(name, columns, live, n_rows=None, **leaves):
    d={"version":3,"columns":columns}
    if n_rows is not None: d["n_rows"]=n_rows
    s[f"/{name}/_meta"]=meta(d)
    s[f"/{name}/_valid_rows"]=b2.asarray(np.array(live,bool))
    for k,v in leaves.items(): s[f"/{name}/_cols/{k.replace('__','.')}"]=v
i=lambda *v: b2.asarray(np.array(v,"i8"))
c=lambda *v: b2.asarray(np.array(v,"i4"))
u=lambda b: b2.asarray(np.frombuffer(b,"u1"))
A={"name":"a","kind":"int64"}
T={"name":"t","kind":"utf8"}
table("sound",[A,T],[1,0,1],2,a=i(1,2,3),t=i(0,1,2,4),t__utf8=u(b"abcd"))
table("more-marked",[A],[1,1,1],2,a=i(1,2,3))
table("fewer-marked",[A],[1,0,0],2,a=i(1,2,3))
table("more-rows",[A],[1,1],3,a=i(1,2))
table("short-column",[A],[1,1,1,1],4,a=i(1,2,3))
table("short-marks",[dict(A,null_storage="mask")],[1,1,1],3,a=i(1,2,3),a__notnull=b2.asarray(np.ones(2,bool)))
table("missing-column",[A,{"name":"b","kind":"int32"}],[1,1],2,a=i(1,2))
table("descending",[T],[1,1,1],3,t=i(0,3,1,4),t__utf8=u(b"abcd"))
table("outside",[T],[1,1],2,t=i(0,1,9),t__utf8=u(b"abcd"))
table("negative",[T],[1,1],2,t=i(-1,1,2),t__utf8=u(b"abcd"))
table("not-utf8",[T],[1,1],2,t=i(0,1,2),t__utf8=u(b"\xc3\xa9xx"))
D={"name":"d","kind":"dictionary","null_code":-1}
table("code",[D],[1,1],2,d=c(0,2)); s["/code/_cols/d_dict"]=batch(["x","y"])
table("not-text",[{"name":"v","kind":"vlstring"}],[1,1],2); s["/not-text/_cols/v"]=batch(["x",[1,2]])
table("few-values",[{"name":"v","kind":"vlstring"}],[1,1,1],3); s["/few-values/_cols/v"]=batch(["x","y"])
table("no-character",[{"name":"w","kind":"string","max_length":1}],[1,1],2,w=b2.asarray(np.array([65,0xd800],"u4").view("U1")))
table("kind",[A],[1],1,a=i(1)); s["/kind/_meta"]=meta({"version":3,"columns":[A]},"ctable2")
table("version",[A],[1],1,a=i(1)); s["/version/_meta"]=meta({"version":9,"columns":[A]})
table("no-json",[A],[1],1,a=i(1)); s["/no-json/_meta"]=meta("{")
table("wide",[dict(A,null_value="x")],[1],1,a=i(1))
def nested(name, spec, leaf, rows):
    table(name,[A,dict(spec,name="l",nullable=True)],[1]*rows,rows,a=i(*range(rows)),l=leaf)
def raw(b):
    leaf=b2.SChunk(); leaf.append_data(b); return leaf
def lists(item): return {"kind":"list","item":item,"storage":"batch","serializer":"msgpack"}
I={"kind":"int8"}
deep=I
for _ in range(40): deep=lists(deep)
nested("not-list",lists(I),batch([[1],"x"]),2)
nested("not-struct",{"kind":"struct","fields":[dict(I,name="x")]},batch([{"x":1},{5:1}]),2)
nested("wide-number",lists(I),batch([[127,-128],[128]]),2)
nested("not-utf8-list",lists({"kind":"string"}),raw(b"\x91\x91\xa1\xff"),1)
nested("endless-list",lists(I),raw(b"\x91\xdd\xff\xff\xff\xff\x01"),1)
nested("endless-text",lists({"kind":"vlbytes"}),raw(b"\x91\x91\xc6\xff\xff\xff\xff\x01"),1)
nested("deep-list",deep,batch([[]]),1)
nested("deep-object",{"kind":"object","serializer":"msgpack"},raw(b"\x91"+b"\x91"*100+b"\x01"),1)
nested("wide-struct",lists({"kind":"struct","fields":[dict(I,name=f"{n}") for n in range(2000)]}),batch([[None]*2000]),1)
s.close()
