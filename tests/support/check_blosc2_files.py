"""Compares every Blosc2 file of a directory, as python-blosc2 reads it and as fzmfs shows it: check_blosc2_files.py
FZMFS DIR. Prints how many files and values were compared, and each difference; fails if there is one."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import blosc2
import numpy as np

try:
    import pyarrow as pa
    import pyarrow.ipc
except ImportError:
    pa = None

warnings.simplefilter("ignore")
fzmfs, kept = sys.argv[1], Path(sys.argv[2])
# What byte 31 of a chunk says of one that has no values yet.
UNINITIALISED = 4
count: collections.Counter[str] = collections.Counter()


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([fzmfs, *args], capture_output=True, text=True, check=False)


class Shown:
    """The files of a container that are compared, extracted."""

    def __init__(self, path: Path, into: str) -> None:
        listed = run("ls", "-R", str(path))
        if listed.returncode != 0:
            raise ValueError(f"cannot be listed: {listed.stderr.strip()[:200]}")
        aside = {"chunks", "stored", "data.zarr", "metalayers", "vlmetalayers", "frames"}
        names = [name for name in listed.stdout.splitlines() if name.endswith((".npy", ".raw", "table.arrow"))]
        # Below the names of a store's groups, which may be any.
        self.names = {name for name in names if not aside & set(name.split("/")[-3:-1])}
        self.top, self.refused = Path(into), ""
        for some in range(0, len(self.names), 500):
            chosen = sorted(self.names)[some : some + 500]
            # A broken part is missing then.
            self.refused += run("extract", str(path), into, *chosen).stderr

    def array(self, name: str) -> np.ndarray:
        return np.load(self.top / name)

    def bytes(self, name: str) -> bytes:
        return (self.top / name).read_bytes()


def same(name: str, got: np.ndarray, want: np.ndarray) -> str | None:
    count["values"] += want.size
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name}: {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    if got.tobytes() == want.tobytes():
        return None
    equal = (got == want) | ((got != got) & (want != want)) if got.dtype.kind in "fc" else got == want
    return None if np.all(equal) else f"{name}: {np.count_nonzero(~equal)} of {want.size} values differ"


def leaf(shown: Shown, name: str, want: Any) -> str | None:
    """Compares the array, the bytes or the batches `want` with what is in the directory `name`."""
    at = f"{name}/" if name else ""
    schunk = getattr(want, "schunk", want)
    if f"{at}data.raw: not supported" in shown.refused:
        count["leaves with a codec or filter that fzmfs does not have"] += 1
        return None
    if any(schunk.get_chunk(i)[31] >> 4 & 7 == UNINITIALISED for i in range(schunk.nchunks)):
        count["leaves with chunks of no defined value, not compared"] += 1
        return None
    if isinstance(want, blosc2.NDArray):
        if f"{at}data.npy" not in shown.names:
            return f"{name or 'data'}: no array"
        return same(name, shown.array(f"{at}data.npy"), np.asarray(want[()] if want.ndim == 0 else want[:]))
    own = b"".join(bytes(schunk.decompress_chunk(i)) for i in range(schunk.nchunks))
    count["values"] += len(own)
    return None if shown.bytes(f"{at}data.raw") == own else f"{name or 'data'}: other bytes"


def table(shown: Shown, name: str, want: Any) -> list[str]:
    """Compares the columns of a table."""
    at, wrong = f"{name}/" if name else "", []
    count["tables"] += 1
    file = shown.top / f"{at}table.arrow"
    arrow = pa.ipc.open_file(file).read_all() if pa and file.exists() else None
    count["tables without table.arrow"] += arrow is None
    if arrow is not None:
        arrow.validate(full=True)
        wrong += [f"{name}: {line}" for line in as_exported(arrow, want)]
    for column in want.col_names:
        values = want[column]
        if column in want.computed_columns or getattr(values, "is_stale", False):
            count["computed columns"] += 1
            continue
        count["columns"] += 1
        try:
            is_whole = len(values[:]) == len(values)
        except Exception:  # noqa: BLE001 - a test that did not close it
            count["columns that python-blosc2 cannot read"] += 1
            continue
        if not is_whole:  # a test that counts its batches wrong
            count["columns of which python-blosc2 reads fewer rows than there are"] += 1
            continue
        own = [None if is_null else value for value, is_null in zip(cells(values), nulls(values), strict=True)]
        count["values"] += len(own)
        field = None if arrow is None else found(arrow, column)
        if field is not None:
            got = field.to_pylist()
            if kind(want, column) == "object":
                got, own = map_present(json.loads, got), map_present(as_json, own)
            if not all(map(equal, got, own)) or len(got) != len(own):
                rows = [i for i, pair in enumerate(zip(got, own, strict=False)) if not equal(*pair)]
                first = f"row {rows[0]}: {got[rows[0]]!r}, not {own[rows[0]]!r}" if rows else f"{len(got)} rows"
                wrong.append(f"{name}:{column} in table.arrow: {first}")
            count[f"columns in table.arrow of the kind {kind(want, column)}"] += 1
        elif arrow is not None:
            count[f"columns not in table.arrow, of the kind {kind(want, column)}"] += 1
        path = f"{at}columns/{relative(column)}"
        if f"{path}.npy" in shown.names:
            got = shown.array(f"{path}.npy")
            marks = shown.array(f"{path}.notnull.npy") if f"{path}.notnull.npy" in shown.names else np.ones(len(got), bool)
            pairs = zip(got, marks, own, strict=True)
            bad = [i for i, (x, mark, y) in enumerate(pairs) if (not mark) != (y is None) or (mark and not equal(x, y))]
            if bad:
                wrong.append(f"{name}:{column}: row {bad[0]}: {got[bad[0]]!r}, not {own[bad[0]]!r}")
        elif field is None:
            count["columns not shown"] += 1
    return wrong


def kind(want: Any, column: str) -> str:
    """What the schema calls the type of a column."""
    described = want._schema.columns_by_name[column].spec.to_metadata_dict()  # noqa: SLF001 - nothing else says it
    serializer = described.get("serializer", "msgpack")
    return described["kind"] if serializer == "msgpack" else f"{described['kind']} in {serializer}"


def found(arrow: pa.Table, column: str) -> Any:
    """A column, which may be a field of structures."""
    if column in arrow.column_names:
        return arrow[column]
    from blosc2.ctable_storage import split_field_path

    parts = split_field_path(column)
    for some in range(1, len(parts)):
        top = parts[0] if some == 1 else ".".join(parts[:some])
        if top in arrow.column_names:
            array = arrow[top].combine_chunks()
            for part in parts[some:]:
                if array.type.get_field_index(part) < 0:
                    return None
                array = array.field(part)
            return array
    return None


def as_exported(arrow: pa.Table, want: Any) -> list[str]:
    """Compares a table with what its library makes of it for Arrow: names, types, values, and missing ones."""
    try:
        own = pa.Table.from_batches(
            list(want.iter_arrow_batches(include_computed=False)),
            want._arrow_schema_for_columns(include_computed=False),  # noqa: SLF001 - to_arrow() has those that are computed
        )
    except Exception:  # noqa: BLE001 - it has no Arrow form of objects, and not of all that tests leave open
        count["tables that python-blosc2 does not export"] += 1
        return []
    if own.num_rows != arrow.num_rows:
        # It exports the rows that the schema counts; those that are marked are compared otherwise.
        count["tables that were not closed, not compared with to_arrow()"] += 1
        return []
    count["tables compared with to_arrow()"] += 1
    if arrow.column_names != own.column_names:
        return [f"columns {arrow.column_names}, to_arrow() has {own.column_names}"]
    wrong = []
    for column in own.column_names:
        if str(arrow[column].type) != str(own[column].type):
            wrong.append(f"{column} is {arrow[column].type}, to_arrow() has {own[column].type}")
        elif not equal(arrow[column].to_pylist(), own[column].to_pylist()):
            wrong.append(f"{column} has other values than to_arrow()")
    return wrong


def map_present(make: Any, values: list[Any]) -> list[Any]:
    return [None if value is None else make(value) for value in values]


def as_json(value: Any) -> Any:
    """What an object is as JSON: bytes, arrays and other types as fzmfs writes them."""

    def other(value: Any) -> Any:
        if isinstance(value, bytes):
            return {"$bin": value.hex()}
        if isinstance(value, complex):
            return [value.real, value.imag]
        if isinstance(value, set):
            return list(value)
        return value.tolist() if isinstance(value, np.ndarray) else repr(value)

    return json.loads(json.dumps(value, default=other))


def relative(column: str) -> str:
    """The path of a column below columns/, with the escapes of a tree."""
    from blosc2.ctable_storage import _column_name_to_relpath

    return _column_name_to_relpath(column).replace("%", "%25")


def cells(values: Any) -> list[Any]:
    own = values[:]
    return list(np.ma.getdata(own)) if isinstance(own, np.ma.MaskedArray) else list(own)


def nulls(values: Any) -> list[bool]:
    own = values[:]
    return [value is None for value in own] if isinstance(own, list) else list(np.asarray(values.is_null(), bool))


def plain(value: Any) -> Any:
    """A value as Python has it."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.ravel()]
    if isinstance(value, np.datetime64):
        return value.astype("M8[ns]").astype("i8").item()
    if hasattr(value, "timestamp"):
        return np.datetime64(value.replace(tzinfo=None), "ns").astype("i8").item()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in sorted(value.items())]
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.void) else value


def equal(got: Any, want: Any) -> bool:
    got, want = plain(got), plain(want)
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(map(equal, got, want))
    if isinstance(want, np.void) or isinstance(got, np.void):
        return bytes(got) == bytes(want)
    return bool(got == want or (got != got and want != want))


def store(shown: Shown, want: Any) -> list[str]:
    """Compares the leaves of a store."""
    wrong = []
    tables = [key.removesuffix("/_meta") for key in want.keys() if key.endswith("/_meta")]  # noqa: SIM118 - it is not a dict
    for key in want.keys():  # noqa: SIM118
        name = key.strip("/")
        if any(name.startswith(f"{table.strip('/')}/") for table in tables):
            continue
        try:
            value = want[key]
        except blosc2.UnsafeDeserializationError:
            count["not compared: recipes"] += 1
            continue
        kind = type(value).__name__
        if kind == "CTable":
            wrong += table(shown, name, value)
        elif kind in ("NDArray", "SChunk", "BatchArray", "ObjectArray", "ListArray"):
            count["leaves"] += 1
            wrong.append(leaf(shown, escaped(name), value))
        elif kind == "TreeStore":
            count["groups"] += 1
        else:
            count[f"not compared: {kind}"] += 1
    return [line for line in wrong if line]


def attributes(path: Path, want: Any) -> list[str]:
    """Compares the metadata of the root of a tree."""
    own = dict(want.vlmeta[:]) if type(want).__name__ == "TreeStore" else {}
    try:
        own = json.loads(json.dumps(own))
    except TypeError:
        count["not compared: metadata of other types"] += 1
        return []
    count["attributes"] += len(own)
    got = json.loads(run("info", "--json", str(path)).stdout).get("attributes", {})
    return [] if got == own else [f"attributes {got}, not {own}"]


def escaped(name: str) -> str:
    return name.replace("%", "%25")


def compare(path: Path) -> list[str]:
    try:
        want: Any = blosc2.open(str(path), mode="r")
        if type(want).__name__ not in ("CTable", "TreeStore", "DictStore", "EmbedStore", "NDArray", "SChunk"):
            # A recipe, batches, or objects: their frame.
            want = blosc2.blosc2_ext.open(str(path), mode="r", offset=0)
    except Exception as error:  # noqa: BLE001 - whatever its library says of it
        count["files that python-blosc2 does not open"] += 1
        refused = run("info", str(path)).returncode != 0
        count["of these, opened by fzmfs"] += not refused
        return [] if error else []
    with tempfile.TemporaryDirectory() as into:
        shown = Shown(path, into)
        kind = type(want).__name__
        count[f"files: {kind}"] += 1
        if kind == "CTable":
            return table(shown, "", want)
        if kind.endswith("Store"):
            return store(shown, want) + attributes(path, want)
        return [line for line in [leaf(shown, "", want)] if line]


def main() -> int:
    differences = 0
    for path in sorted(kept.iterdir()):
        try:
            wrong = compare(path)
        except Exception as error:  # noqa: BLE001 - one file of thousands
            wrong = [f"{type(error).__name__}: {error}"]
        differences += bool(wrong)
        for line in wrong[:3]:
            print(f"{path.name}: {line}", flush=True)
    for name, n in sorted(count.items()):
        print(f"{n:>12} {name}")
    print(f"{differences:>12} files with differences")
    return 1 if differences or not count["values"] else 0


if __name__ == "__main__":
    sys.exit(main())
