"""`data.zarr` of mounts in the programs that read Zarr, held against the plain bytes.

check_zarr.py make DIR          writes Blosc2 arrays and, beside each, NAME.npy
check_zarr.py compare POINT...  compares every array of each mount in every reader; POINT=FILE: with the array in FILE
check_zarr.py broken POINT      checks that every reader raises an error where the array `data` is broken
check_zarr.py windows POINT LO:HI,...  prints, of each reader and window of `data`, the bytes or `error`

Run by the Python of scripts/oracle zarr.
"""

import json
import os
import sys
import warnings

import blosc2
import dask.array
import numpy as np
import tensorstore
import xarray
import zarr

PIPELINES = {"zarr-python": "zarr.core.codec_pipeline.BatchedCodecPipeline", "zarrs": "zarrs.ZarrsCodecPipeline"}
# Name, type, shape, chunk and block of the container, names of dimensions.
ARRAYS = [
    ("edges", "<f4", (1100, 1300), (512, 512), (64, 128), ["y", "x"]),
    ("uneven", "<f8", (701, 1003), (70, 1003), (64, 999), None),
    ("big_endian", ">f4", (900, 801), (300, 800), (100, 200), None),
    ("brick", "<i2", (130, 129, 131), (64, 64, 64), (16, 64, 64), ["z", "y", "x"]),
    ("long", "<u4", (3_000_001,), (1_000_000,), (50_000,), ["time"]),
    ("bytes", "|u1", (5_000_011,), (1 << 20,), (1 << 16,), None),
    ("truths", "|b1", (2100, 2301), (500, 2301), (50, 2301), None),
    ("half", "<f2", (1, 1, 1_500_000), (1, 1, 400_000), (1, 1, 30_000), None),
    ("complex", "<c16", (400, 500), (150, 500), (10, 500), None),
    ("signed", "|i1", (3, 0, 5), (3, 1, 5), (1, 1, 5), None),
    ("scalar", "<i8", (), (), (), None),
    ("single", ">u8", (1, 1, 1), (1, 1, 1), (1, 1, 1), None),
    ("times", "<M8[ns]", (300_001,), (100_000,), (10_000,), ["time"]),
    ("spans", ">m8[25s]", (700, 1001), (100, 1001), (10, 1001), None),
    ("texts", "<U5", (90_001,), (30_000,), (1000,), None),
    ("bytes_5", "|S5", (1_000_001,), (30_000,), (1000,), None),
]


def make(folder):
    rng = np.random.default_rng(7)
    for name, dtype, shape, chunks, blocks, dimensions in ARRAYS:
        dtype = np.dtype(dtype)
        walk = np.cumsum(rng.integers(-9, 10, shape)).reshape(shape)
        array = (walk % 2 if dtype.kind == "b" else walk + (0.5j if dtype.kind == "c" else 0)).astype(dtype)
        meta = {"dimension_names": dimensions} if dimensions else {}
        path = os.path.join(folder, name)
        blosc2.asarray(array, urlpath=path + ".b2nd", mode="w", chunks=chunks, blocks=blocks, meta=meta)
        np.save(path + ".npy", array)


def plain(point, path):
    """The bytes of an array as the mount shows them otherwise."""
    # In the group no array has the name of a group, and fewer names are allowed.
    name = path.replace("~2", "").replace("%5C", "\\")
    for place in (f"{path}.npy", f"tensors/{path}.npy", f"{path}/data.npy", f"tensors/{name}.npy"):
        file = os.path.join(point, place)
        if os.path.exists(file):
            return np.load(file)
    raise AssertionError(f"{point}: no other file has the array {path}")


def itemsize(data_type):
    """Bytes of an element, in the document of an array."""
    if isinstance(data_type, str):
        return {"bfloat16": 2}.get(data_type) or (1 if data_type.startswith("float8") else np.dtype(data_type).itemsize)
    configuration = data_type["configuration"]
    if "fields" in configuration:
        return sum(itemsize(field["data_type"]) for field in configuration["fields"])
    return configuration.get("length_bytes", 8)


def openers(root, path, rank, data_type="float32"):
    """How each reader that knows the type opens an array and reads all of it, or a window."""
    place = os.path.join(root, path)

    def python(pipeline):
        def read(window=...):
            with zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]}):
                return np.asarray(zarr.open_group(root, mode="r")[path][window])
        return read

    def store():
        kv = {"driver": "file", "path": place + "/"}
        return tensorstore.open({"driver": "zarr3", "kvstore": kv}, read=True).result()

    readers = {name: python(name) for name in PIPELINES}
    if isinstance(data_type, str):
        readers["tensorstore"] = lambda window=...: store()[window].read().result()
    if rank > 0:
        readers["dask"] = lambda window=...: dask.array.from_zarr(place)[window].compute(scheduler="threads")
    return readers


def same(array, want, what):
    assert array.shape == want.shape and array.dtype.newbyteorder("=") == want.dtype.newbyteorder("="), (what, array)
    assert np.ascontiguousarray(array, want.dtype).tobytes() == want.tobytes(), what


def parts(root, path, want):
    """Slices and points of an array, in zarr-python."""
    array = zarr.open_group(root, mode="r")[path]
    rng = np.random.default_rng(3)
    for _ in range(4):
        ends = [np.sort(rng.integers(0, n + 1, 2)) for n in want.shape]
        window = tuple(slice(int(a), int(b)) for a, b in ends)
        assert np.array_equal(array[window], want[window], equal_nan=want.dtype.kind in "fc"), (path, window)
    steps = (slice(1, None, 3),) * want.ndim
    assert np.array_equal(array[steps], want[steps], equal_nan=want.dtype.kind in "fc"), path
    if want.size:
        picked = [rng.integers(0, n, min(n, 5)) for n in want.shape]
        assert np.array_equal(array.oindex[tuple(picked)], want[np.ix_(*picked)], equal_nan=want.dtype.kind in "fc")


def grid(root, path, document):
    """Every chunk exists with its length, and nothing beside them; what is probed for and missing is just missing."""
    shape, chunk = document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"]
    sides = [-(-n // c) for n, c in zip(shape, chunk)]
    size = int(np.prod(chunk, dtype=object)) * itemsize(document["data_type"])
    folder = os.path.join(root, path, "c")
    for index in np.ndindex(*sides):
        assert os.path.getsize(os.path.join(folder, *map(str, index))) == size, (path, index)
    for name in (".zarray", ".zattrs", ".zgroup", ".zmetadata", "c/.zarray", "c/" + str(sides[0] if sides else 0)):
        assert not os.path.exists(os.path.join(root, path, name)), (path, name)
    if shape and 0 not in shape:
        assert sorted(os.listdir(folder), key=int) == [str(i) for i in range(sides[0])], path


def compare(words):
    counts = dict.fromkeys(["arrays", "chunked", "left out", "unreadable", "xarray"], 0)
    for word in words:
        point, _, file = word.partition("=")
        root = os.path.join(point, "data.zarr")
        with open(os.path.join(root, "zarr.json"), encoding="utf-8") as document:
            group = json.load(document)
        counts["left out"] += len(group["attributes"]["left_out"])
        groups = {"": []}
        for path, document in group["consolidated_metadata"]["metadata"].items():
            with open(os.path.join(root, path, "zarr.json"), encoding="utf-8") as own:
                own = json.load(own)
            if document["node_type"] == "group":
                groups[path] = []
                assert {k: own[k] for k in document} == document, path
                continue
            assert own == document, path
            grid(root, path, document)
            try:
                want = np.load(file) if file else plain(point, path)
            except OSError:
                want = None
            groups[path.rpartition("/")[0]].append((path.rpartition("/")[2], want))
            if want is None:
                counts["unreadable"] += 1
                for reader, read in openers(root, path, len(document["shape"]), document["data_type"]).items():
                    fails(read, (root, path, reader))
                continue
            for reader, read in openers(root, path, want.ndim, document["data_type"]).items():
                same(read(), want, (root, path, reader))
            if want.ndim and want.dtype.kind not in "V":
                parts(root, path, want)
            counts["arrays"] += 1
            counts["chunked"] += document["shape"] != document["chunk_grid"]["configuration"]["chunk_shape"]
        for path, arrays in groups.items():
            with xarray.open_zarr(os.path.join(root, path)) as data:
                assert sorted(data.data_vars) == sorted(name for name, _ in arrays), (root, path, data)
                for name, want in arrays:
                    # Times have the unit that xarray prefers.
                    if want is not None and want.dtype.kind not in "Mm":
                        same(data[name].values, want, (root, path, name, "xarray"))
                        counts["xarray"] += 1
    print(counts)


def fails(read, what):
    """The name of the error that `read` raises."""
    try:
        read()
    except Exception as error:
        return type(error).__name__
    raise AssertionError(f"{what}: read what is broken")


def broken(point):
    root = os.path.join(point, "data.zarr")
    for reader, read in openers(root, "data", 1).items():
        print(reader, fails(read, reader))
    with xarray.open_zarr(root) as data:
        print("xarray", fails(lambda: data["data"].values, "xarray"))


def windows(point, *texts):
    for reader, read in openers(os.path.join(point, "data.zarr"), "data", 3).items():
        for text in texts:
            window = tuple(slice(*map(int, ends.split(":"))) for ends in text.split(","))
            try:
                print(reader, read(window).tobytes().hex())
            except Exception:
                print(reader, "error")


if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    commands = {"make": make, "compare": lambda *points: compare(points), "broken": broken, "windows": windows}
    commands[sys.argv[1]](*sys.argv[2:])
