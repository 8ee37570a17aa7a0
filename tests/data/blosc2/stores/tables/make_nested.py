"""Writes nested_tables.b2z: lists, structures and objects in tables of a tree, and what python-blosc2 exports of them."""
import datetime, json, os, sys
from dataclasses import dataclass
import blosc2 as b2, numpy as np, pyarrow as pa, pyarrow.ipc
out = sys.argv[1]
point = b2.struct({"x": b2.float32(), "at": b2.int64(nullable=True), "name": b2.string(nullable=True)})
@dataclass
class Nested:
    id: int = b2.field(b2.int16())
    tags: list[str] = b2.field(b2.list(b2.string(nullable=True), nullable=True), default=None)
    rows: list[list[int]] = b2.field(b2.list(b2.list(b2.int32(), nullable=True)), default=None)
    points: list[dict] = b2.field(b2.list(point, nullable=True, batch_rows=7), default=None)
    pair: dict = b2.field(b2.struct({"flag": b2.bool(), "raw": b2.bytes(max_length=4), "sizes": b2.list(b2.uint8())}, nullable=True), default=None)
    alone: list[float] = b2.field(b2.list(b2.float64(), nullable=True, storage="vl"), default=None)
    any: object = b2.field(b2.object(nullable=True), default=None)
path = f"{out}/nested_tables.b2z"
if os.path.exists(path): os.remove(path)
tree = b2.TreeStore(path, mode="w")
T = ["", "a", "\u00e9\u00df", None, "\U0001f600!"]
ANY = [None, 1, -2.5, "text", [1, [True, None]], {"k": {"n": 2}}, (1, 2), b"\x00\xff", float("nan"), []]
def at(i, n): return {"x": i / 4, "at": None if n % 3 == 1 else i * n, "name": T[(i + n) % 5]}
t = b2.CTable(Nested, validate=False)
for i in range(25):
    t.append((i, None if i % 6 == 5 else [T[(i + n) % 5] for n in range(i % 4)],
      [None if n % 3 == 2 else list(range(n)) for n in range(i % 5)], None if i % 7 == 3 else [at(i, n) for n in range(i % 3)],
      None if i % 5 == 4 else {"flag": i % 2 == 0, "raw": bytes([i, 0]), "sizes": list(range(250, 250 + i % 4))},
      None if i % 8 == 1 else [i / 2, -0.0, 1e300][: i % 4], ANY[i % len(ANY)]))
tree["/nested"] = t
when = pa.timestamp("ms", tz="UTC")
trip = pa.struct([("begin", pa.struct([("lon", pa.float64()), ("when", when)])), ("a.b", pa.string()), ("stops", pa.list_(pa.string()))])
row = lambda i: {"id": i, "trip": {"begin": {"lon": i / 8, "when": datetime.datetime.fromtimestamp(1.7e9 + i, datetime.UTC)}, "a.b": f"t{i}", "stops": ["x"] * (i % 3)},
    "parts": None if i % 4 == 1 else [{"n": n, "of": [n, None] if n else None, "as": f"p{n}"} for n in range(i % 3)]}
parts = pa.list_(pa.struct([("n", pa.int32()), ("of", pa.list_(pa.float32())), ("as", pa.string())]))
table = pa.Table.from_pylist([row(i) for i in range(20)], schema=pa.schema([("id", pa.int64()), ("trip", trip), ("parts", parts)]))
for name in ("msgpack", "arrow"):
    t = b2.CTable.from_arrow(table.schema, table.to_batches(max_chunksize=6), list_serializer=name)
    t._source_bound = False # 4.14.1 forgets to
    tree[f"/imported/{name}"] = t
tree.close()
tree = b2.TreeStore(path, mode="a")
t = tree["/nested"]
t.delete([0, 5, 6, 19])
t.close()
tree.close()
tree = b2.TreeStore(path, mode="r")
any = [None if v is None else json.dumps(v, ensure_ascii=False, separators=(",", ":"), default=lambda b: {"$bin": b.hex()}).replace("NaN", '"NaN"')
       for v in tree["/nested"]["any"][:]]
names = [name for name in tree["/nested"].col_names if name != "any"]
for key, name in (("/nested", "nested"), ("/imported/msgpack", "imported")):
    t = tree[key]
    batches = list(t.iter_arrow_batches(columns=names)) if name == "nested" else t.to_arrow().to_batches()
    table = pa.Table.from_batches(batches).combine_chunks()
    if name == "nested":
        json_type = pa.field("any", pa.string(), metadata={"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""})
        table = table.append_column(json_type, [any])
    print(table.schema)
    with pa.ipc.new_file(f"{out}/{name}.arrow", table.schema) as writer:
        writer.write_table(table)
# A block of a leaf, as pyarrow alone writes it.
parts = [[{"n": -1, "of": [0.5, None], "as": "a"}, None], None, [], [{"n": 7, "of": None, "as": ""}]]
parts = pa.array(parts, pa.large_list(pa.struct([("n", pa.int32()), ("of", pa.list_(pa.float32())), ("as", pa.string())])))
flags = pa.array([True, None, False, True])
with pa.OSFile(f"{out}/parts.arrows", "wb") as file:
    for array in (parts, flags):
        with pa.ipc.new_stream(file, pa.schema([pa.field("parts", array.type)])) as writer:
            writer.write_batch(pa.record_batch([array], names=["parts"]))
