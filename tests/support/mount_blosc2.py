"""Blosc2 files made by the official library, and mounts of them held against how the library reads them.

mount_blosc2.py make DIR             writes the files
mount_blosc2.py compare DIR MOUNTS   compares each file of DIR with its mount, MOUNTS/NAME

Run by the Python of scripts/oracle blosc2.
"""

import os
import sys

import blosc2
import msgpack
import numpy as np

CODEC, FILTER = blosc2.Codec, blosc2.Filter
SHUFFLE, BITSHUFFLE, DELTA, BYTEDELTA, TRUNC = (
    [FILTER.SHUFFLE], [FILTER.BITSHUFFLE], [FILTER.DELTA, FILTER.SHUFFLE], [FILTER.SHUFFLE, FILTER.BYTEDELTA],
    [FILTER.TRUNC_PREC, FILTER.SHUFFLE])
RECORD = [("a", "<i4"), ("b", ">f8", (2, 3)), ("c", "S3")]

# Name, item type, shape, shape of a chunk and of a block, codec, level, filters. Few chunks divide their array, and
# few blocks their chunk: the rest of both is padding.
ARRAYS = [
    ("bytes", "u1", (100_003,), (30_000,), (7_000,), CODEC.BLOSCLZ, 5, []),
    ("delta", "<i2", (301, 207), (100, 64), (33, 10), CODEC.LZ4, 5, DELTA),
    ("rows", "<i4", (1000, 1000), (256, 1000), (16, 1000), CODEC.LZ4HC, 9, SHUFFLE),
    ("truncated", "<f4", (60, 61, 62), (25, 30, 20), (7, 11, 20), CODEC.ZSTD, 1, TRUNC),
    ("bits", "<f8", (9, 8, 7, 130), (4, 5, 6, 64), (3, 2, 5, 48), CODEC.ZSTD, 5, BITSHUFFLE),
    ("complex", "<c16", (211, 97), (50, 97), (9, 40), CODEC.ZLIB, 6, SHUFFLE),
    ("bytedelta", ">u4", (5003,), (1000,), (300,), CODEC.ZSTD, 3, BYTEDELTA),
    ("dates", "<M8[ns]", (77, 33), (30, 10), (8, 10), CODEC.BLOSCLZ, 9, SHUFFLE),
    ("truths", "|b1", (40, 50, 60), (17, 50, 60), (17, 13, 7), CODEC.LZ4, 1, BITSHUFFLE),
    ("words", "<U5", (500, 3), (128, 2), (50, 1), CODEC.ZSTD, 1, SHUFFLE),
    ("texts", "|S7", (3001,), (900,), (77,), CODEC.LZ4, 5, SHUFFLE),
    ("records", RECORD, (130, 40), (50, 17), (20, 5), CODEC.ZSTD, 1, SHUFFLE),
    ("stored", "<u8", (90, 90), (31, 31), (10, 10), CODEC.LZ4, 0, []),
    ("scalar", "<f8", (), (), (), CODEC.LZ4, 5, SHUFFLE),
]
# Name, bytes of an item and of a chunk, codec, filters; bytes in no array.
FRAMES = [
    ("plain", 1, 10_000, CODEC.LZ4, []),
    ("three", 3, 30_000, CODEC.ZSTD, SHUFFLE),
    ("seven", 7, 70_000, CODEC.LZ4, BITSHUFFLE),
    ("wide", 300, 30_000, CODEC.BLOSCLZ, SHUFFLE),
]


def values(rng, dtype, shape):
    """Random walks of any type, in runs: not all noise, not all the same."""
    if dtype.fields:
        made = np.zeros(shape, dtype)
        for field in dtype.names:
            base, inner = dtype[field].subdtype or (dtype[field], ())
            made[field] = values(rng, base, shape + inner)
        return made
    walk = np.cumsum(rng.integers(-9, 10, shape, dtype="<i8") * rng.integers(0, 2, shape)).reshape(shape)
    if dtype.kind == "c":
        return (walk + 1j * walk[::-1]).astype(dtype)
    return (walk % 2).astype(dtype) if dtype.kind == "b" else walk.astype(dtype)


def make(out):
    rng = np.random.default_rng(11)
    for name, dtype, shape, chunks, blocks, codec, level, filters in ARRAYS:
        metas = [12 if f is FILTER.TRUNC_PREC else 0 for f in filters]
        cparams = blosc2.CParams(codec=codec, clevel=level, filters=filters, filters_meta=metas, nthreads=1)
        array = values(rng, np.dtype(dtype), shape)
        for suffix, contiguous in [(".b2nd", True), (".sparse", False)]:
            made = blosc2.asarray(array, chunks=chunks, blocks=blocks, cparams=cparams, contiguous=contiguous,
                                  urlpath=os.path.join(out, name + suffix), mode="w", meta={"of": {"name": name}})
            made.schunk.vlmeta["note"] = {"name": name, "shape": list(shape)}
        if FILTER.DELTA in filters:
            np.save(os.path.join(out, name), array)
    # Chunks that are only entries of the index, some of them written over.
    for suffix, contiguous in [(".b2nd", True), (".sparse", False)]:
        path = os.path.join(out, "special" + suffix)
        made = blosc2.full((100, 300), 2.5, dtype="<f8", chunks=(30, 70), blocks=(10, 20), urlpath=path, mode="w",
                           contiguous=contiguous)
        made[35:70, 100:250] = values(rng, np.dtype("<f8"), (35, 150))
        zeros = blosc2.zeros((50, 60), dtype="<i4", chunks=(7, 60), blocks=(7, 9), contiguous=contiguous,
                             urlpath=os.path.join(out, "zeros" + suffix), mode="w")
        zeros[8:10] = 7
    for name, typesize, chunksize, codec, filters in FRAMES:
        data = values(rng, np.dtype("u1"), (typesize * 40_003,)).tobytes()
        cparams = blosc2.CParams(typesize=typesize, codec=codec, filters=filters, filters_meta=[0] * len(filters))
        for suffix, contiguous in [(".b2frame", True), (".sparse", False)]:
            blosc2.SChunk(chunksize=chunksize, data=data, cparams=cparams, contiguous=contiguous,
                          urlpath=os.path.join(out, name + suffix), mode="w")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def compare(path, point):
    # With threads of its own the library waits for ever on a part of a chunk with the filter DELTA.
    opened = blosc2.open(path, mode="r", dparams=blosc2.DParams(nthreads=1))
    schunk = getattr(opened, "schunk", opened)
    mapped = np.load(os.path.join(point, "data.npy"), mmap_mode="r")
    assert isinstance(mapped, np.memmap) or mapped.ndim == 0
    if isinstance(opened, blosc2.NDArray):
        assert (mapped.dtype, mapped.shape) == (opened.dtype, opened.shape), (mapped.dtype, mapped.shape)
        # With one thread it reads such a part wrong: what was written is saved.
        written = os.path.splitext(path)[0] + ".npy"
        whole = np.load(written) if os.path.exists(written) else np.asarray(opened[...])
    else:
        whole = np.frombuffer(schunk[:], mapped.dtype)
        assert mapped.dtype == (np.dtype("u1") if schunk.typesize == 1 else np.dtype(f"V{schunk.typesize}"))
    sliced = opened if isinstance(opened, blosc2.NDArray) and not os.path.exists(written) else whole
    rng = np.random.default_rng(3)
    for _ in range(40):
        bounds = [sorted(rng.integers(0, n + 1, 2)) for n in mapped.shape]
        key = tuple(slice(a, b) for a, b in bounds)
        assert mapped[key].tobytes() == np.asarray(sliced[key]).tobytes(), key
    assert mapped.tobytes() == whole.tobytes()
    assert content(os.path.join(point, "data.raw")) == whole.tobytes()

    names = sorted(os.listdir(os.path.join(point, "chunks")))
    assert names == [f"{i:06}.raw" for i in range(schunk.nchunks)], names
    for i, name in enumerate(names):
        assert content(os.path.join(point, "chunks", name)) == schunk.decompress_chunk(i), name
    for name in schunk.vlmeta:
        stored = content(os.path.join(point, "vlmetalayers", name + ".msgpack"))
        assert msgpack.unpackb(stored) == schunk.vlmeta[name], name
    return schunk.nchunks


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2])
        return
    for name in sorted(name for name in os.listdir(sys.argv[2]) if not name.endswith(".npy")):
        try:
            count = compare(os.path.join(sys.argv[2], name), os.path.join(sys.argv[3], name))
        except Exception as e:
            raise AssertionError(name) from e
        print(name, count)


main()
