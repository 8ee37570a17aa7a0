"""Writes tables.b2z: two tables in a tree, with deleted rows, and what python-blosc2 gives for them."""
import os, shutil, sys
from dataclasses import dataclass
import blosc2 as b2, numpy as np, pyarrow as pa, pyarrow.ipc
out = sys.argv[1]
@dataclass
class Masked:
    id: int = b2.field(b2.int64(ge=0))
    score: float = b2.field(b2.float64(nullable=True), default=0.0)
    active: bool = b2.field(b2.bool(nullable=True), default=True)
    name: str = b2.field(b2.string(max_length=8), default="")
    raw: bytes = b2.field(b2.bytes(max_length=3), default=b"")
    text: str = b2.field(b2.utf8(nullable=True), default="")
    words: str = b2.field(b2.vlstring(nullable=True), default="")
    blob: bytes = b2.field(b2.vlbytes(nullable=True), default=b"")
    kind: str = b2.field(b2.dictionary(nullable=True), default="x")
    when: object = b2.field(b2.timestamp(unit="ms", nullable=True), default=0)
    vec: object = b2.field(b2.ndarray((2, 3), dtype=np.int16), default=None)
    bits: object = b2.field(b2.ndarray((3,), dtype=np.bool_), default=None)
@dataclass
class Valued:
    id: int = b2.field(b2.uint8(null_value=255))
    f: float = b2.field(b2.float32(null_value=float("nan")))
    flag: bool = b2.field(b2.bool(nullable=True, null_value=255))
    name: str = b2.field(b2.string(max_length=4, null_value=""))
    raw: bytes = b2.field(b2.bytes(max_length=2, null_value=b"xx"))
    text: str = b2.field(b2.utf8(null_value="NA"))
    when: object = b2.field(b2.timestamp(unit="us", timezone="UTC", null_value=-(2**63)))
    vec: object = b2.field(b2.ndarray((2,), dtype=np.int32, null_value=-1))
path = f"{out}/tables.b2z"
if os.path.exists(path): os.remove(path)
tree = b2.TreeStore(path, mode="w")
m = b2.CTable(Masked)
T = ["", "a", "\u00e9\u00df", "\u6f22\u5b57", "\U0001f600!", "long enough to differ"]
for i in range(40):
    m.append((i, None if i % 5 == 1 else i / 2, None if i % 9 == 4 else i % 2 == 0, T[i % 5], b"r%d" % (i % 7), None if i % 6 == 3 else T[i % 6],
      None if i % 4 == 0 else T[(i + 1) % 6], None if i % 7 == 0 else bytes([i, 0, 255]) * (i % 3), None if i % 8 == 5 else f"kind {i % 3}",
      None if i % 8 == 0 else np.datetime64(1700000000000 + i, "ms"), np.full((2, 3), i, np.int16), np.array([i % 2, 1, 0], bool)))
m.vlmeta["note"] = "hello"
v = b2.CTable(Valued)
v.extend(dict(id=(np.arange(20) * 15 % 256).astype("u1"), f=np.where(np.arange(20) % 3 == 0, np.nan, np.arange(20)).astype("f4"),
  flag=np.array([0, 1, 255, 1] * 5, "u1"), name=np.array(["", "ab", "\u00e9", "abcd"] * 5), raw=np.array([b"xx", b"a", b"", b"ab"] * 5),
  text=["NA", "na", "", "\u6f22"] * 5, when=np.where(np.arange(20) % 4 == 0, -(2**63), np.arange(20)), vec=np.array([[-1, -1], [-1, 0], [1, 2], [3, 4]] * 5, "i4")))
tree["/runs/masked"] = m
tree["/valued"] = v
tree["/plain"] = np.arange(3)
tree.close()
tree = b2.TreeStore(path, mode="a")
table = tree["/runs/masked"]
table.delete([0, 3, 4, 10, 38])
table.close()
tree.close()
tree = b2.TreeStore(path, mode="r")
for key, name in (("/runs/masked", "masked"), ("/valued", "valued")):
    table = tree[key].to_arrow()
    with pa.ipc.new_file(f"{out}/{name}.arrow", table.schema) as writer:
        writer.write_table(table.combine_chunks())
    shutil.rmtree(f"{out}/{name}", ignore_errors=True); os.mkdir(f"{out}/{name}")
    for column in tree[key].col_names:
        values = tree[key][column][:]
        if isinstance(values, np.ma.MaskedArray): values = values.data
        if column == "blob": continue
        if column == "flag": values = values == 1
        if column in ("text", "words", "kind"):
            values = np.array(["" if x is None else x for x in values])
        print(name, column, values.dtype, values.shape)
        np.save(f"{out}/{name}/{column}.npy", values)
        null = np.asarray(tree[key][column].is_null())
        if null.any(): np.save(f"{out}/{name}/{column}.notnull.npy", ~null)
