"""Blosc2 files made by the official library, for the tests.

make_blosc2.py own DIR                the files of tests/data/blosc2/own, and beside DIR those that are in tests/data/blosc2:
                                      archive.b2z and stores/
make_blosc2.py random DIR SEED COUNT  random data with random parameters: N.b2frame, N.b2nd or N.b2b, and N.raw, which is
                                      what reading it must give
make_blosc2.py bench DIR THREADS      the files of the benchmark; then, for each line "NAME one" or "NAME all" read from
                                      standard input, the seconds that decoding it once takes: of the processor
                                      on one thread, on the clock with THREADS
make_blosc2.py arrays DIR BYTES [MODULE...]
                                      arrays of about BYTES bytes in DIR; then, for each line "WHAT PATH" read from standard
                                      input, the seconds that it takes: "load" with numpy.load, "read" with blosc2 or,
                                      of a group, zarr, "tensorstore" of its array, "windows" of 64 x 64 elements with
                                      any but the last; the MODULEs are imported before

Run by the Python of scripts/oracle blosc2.
"""

import importlib
import os
import sys
import time

import blosc2
import numpy as np

CODECS = [blosc2.Codec.BLOSCLZ, blosc2.Codec.LZ4, blosc2.Codec.LZ4HC, blosc2.Codec.ZLIB, blosc2.Codec.ZSTD]
FILTERS = [
    [],
    [blosc2.Filter.SHUFFLE],
    [blosc2.Filter.BITSHUFFLE],
    [blosc2.Filter.DELTA],
    [blosc2.Filter.DELTA, blosc2.Filter.SHUFFLE],
    [blosc2.Filter.DELTA, blosc2.Filter.BITSHUFFLE],
    [blosc2.Filter.SHUFFLE, blosc2.Filter.BYTEDELTA],
]
SPLITS = list(blosc2.SplitMode)
TYPESIZES = [1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 33, 255, 300]


def large_chunk(path):
    """One chunk of 64 MiB in blocks of 128 KiB."""
    data = (np.arange(16 << 20, dtype="<u4") * np.uint32(3)).astype("<u4")
    cparams = blosc2.CParams(
        typesize=4, codec=blosc2.Codec.ZSTD, clevel=9, filters=[blosc2.Filter.SHUFFLE, blosc2.Filter.BYTEDELTA],
        blocksize=128 << 10, nthreads=1)
    blosc2.SChunk(chunksize=64 << 20, data=data, cparams=cparams, urlpath=path, mode="w")


def all_chunks_deleted(path):
    """A frame that has lost its chunks, and not the count of their bytes."""
    schunk = blosc2.SChunk(chunksize=400, cparams=blosc2.CParams(typesize=4), urlpath=path, mode="w", contiguous=True)
    for i in range(3):
        schunk.append_data(bytes([i]) * 400)
    for _ in range(3):
        schunk.delete_chunk(0)


def small_chunks(path):
    """40 chunks of 1,000 bytes, no two alike."""
    cparams = blosc2.CParams(typesize=4, codec=blosc2.Codec.LZ4, clevel=5, nthreads=1)
    schunk = blosc2.SChunk(chunksize=1000, cparams=cparams, urlpath=path, mode="w", contiguous=True)
    for i in range(40):
        schunk.append_data((np.arange(250, dtype="<u4") // 50 + 1000 * i).astype("<u4"))


def small_special_chunks(path):
    """2^25 chunks of 32 bytes of zeros that exist only as index entries; the index chunk is not one repeated value."""
    count, block = 1 << 25, 512 << 10
    schunk = blosc2.SChunk(chunksize=32, cparams=blosc2.CParams(typesize=8, nthreads=1), contiguous=True)
    schunk.fill_special(4 * 32 // 8, blosc2.SpecialValue.ZERO)
    frame = bytearray(schunk.to_cframe())
    frame[30:38] = (32 * count).to_bytes(8, "big")
    header_len = int.from_bytes(frame[11:15], "big")
    trailer = frame[-int.from_bytes(frame[-22:-18], "big"):]
    index = blosc2.compress2(
        b"\0\0\0\0\0\0\0\x81" * count, typesize=8, codec=blosc2.Codec.ZSTD, clevel=1,
        filters=[blosc2.Filter.SHUFFLE], blocksize=block, nthreads=1)
    frame = frame[:header_len] + bytes(index) + trailer
    with open(path, "wb") as file:
        file.write(frame[:16] + len(frame).to_bytes(8, "big") + frame[24:])


def archive(path):
    """Arrays in a ZIP archive, as the stores of python-blosc2 write them."""
    store = blosc2.DictStore(path, mode="w")
    store["/numbers"] = np.arange(2000, dtype="<i4").reshape(40, 50)
    store["/group/ones"] = blosc2.ones((30, 30), dtype="<f8")
    store.close()


def stores(out):
    """A tree whose small leaves are embedded, a store of frames, and one whose map lies."""
    os.makedirs(out, exist_ok=True)
    with blosc2.TreeStore(os.path.join(out, "tree.b2z"), mode="w", threshold=2000) as tree:
        tree["/a/small"] = np.arange(6, dtype="<i4").reshape(2, 3)
        tree["/a/large"] = np.arange(4000, dtype="<f8").reshape(40, 100)
        tree["/top"] = np.array([1.5, 2.5])
        units = blosc2.asarray(np.arange(3, dtype="<i8"))
        units.schunk.vlmeta["units"] = "K"
        tree["/b/units"] = units
        tree.vlmeta["title"] = "a tree"
        tree["/a"].vlmeta["note"] = [1, 2]
    store = blosc2.EmbedStore(os.path.join(out, "store.b2e"), mode="w")
    store["/x/y"] = np.arange(5, dtype="<i8")
    store["/z"] = np.ones((2, 2), "<f4")
    store["/bytes"] = blosc2.SChunk(chunksize=10, data=b"hello")
    store = blosc2.EmbedStore(os.path.join(out, "hostile.b2e"), mode="w")
    store["/good"] = np.arange(5, dtype="<i8")
    store["/store"] = blosc2.open(os.path.join(out, "store.b2e"))._store
    good = store._embed_map["/good"]
    store._embed_map |= {
        "/outside": {"offset": good["length"], "length": 1 << 20},
        "/overflow": {"offset": (1 << 64) - 1, "length": 2},
        "/negative": {"offset": -1, "length": 300},
        "/no frame": {"offset": 7, "length": 200},
        "/short": {"offset": 0, "length": 100},
        "/empty": {"offset": 0, "length": 0},
        "/nothing": None,
        "/server": {"urlbase": "http://localhost/", "path": "x"},
        "/../..": good,
        "/": good,
    }
    store._save_metadata()


def content(rng, size, typesize):
    """Bytes of one of the sorts that codecs and filters tell apart."""
    sort = rng.integers(0, 6)
    if sort == 0:
        return bytes(size)
    if sort == 1:
        return rng.integers(0, 256, size, dtype=np.uint8).tobytes()
    if sort == 2:
        return rng.integers(0, 4, size, dtype=np.uint8).tobytes()
    if sort == 3:
        walk = np.cumsum(rng.integers(-9, 10, size // 4 + 1)).astype("<i4")
        return walk.tobytes()[:size]
    if sort == 4:
        wave = np.sin(np.arange(size // 8 + 1) / 50) + rng.normal(0, 1e-3, size // 8 + 1)
        return wave.tobytes()[:size]
    word = rng.integers(0, 256, max(1, typesize * int(rng.integers(1, 9))), dtype=np.uint8).tobytes()
    return (word * (size // len(word) + 1))[:size]


def cparams_of(rng, typesize):
    # The library cannot write BYTEDELTA for wider items.
    filters = FILTERS[rng.integers(0, len(FILTERS) - (typesize > 127))]
    codec = CODECS[rng.integers(0, len(CODECS))]
    return dict(
        typesize=typesize,
        codec=codec,
        clevel=int(rng.integers(0, 10)),
        filters=filters,
        filters_meta=[0] * len(filters),
        splitmode=SPLITS[rng.integers(0, len(SPLITS))],
        use_dict=bool(codec != blosc2.Codec.BLOSCLZ and codec != blosc2.Codec.ZLIB and rng.integers(0, 4) == 0),
        nthreads=int(rng.integers(1, 3)),
    )


def frame(rng, stem):
    typesize = int(rng.choice(TYPESIZES))
    size = int(rng.integers(0, 1 << int(rng.integers(1, 20))))
    data = content(rng, size, typesize)
    items = max(1, int(rng.integers(1, 1 << int(rng.integers(1, 18)))) // typesize)
    params = cparams_of(rng, typesize)
    # The library cannot read back its own blocks that are not multiples of an item.
    params["blocksize"] = int(rng.integers(0, 3)) and typesize * int(rng.integers(32 // typesize + 1, 40_000 // typesize + 2))
    schunk = blosc2.SChunk(chunksize=items * typesize, cparams=blosc2.CParams(**params),
                           urlpath=stem + ".b2frame", mode="w", contiguous=True)
    for start in range(0, size // typesize * typesize, items * typesize):
        chunk = data[start:min(start + items * typesize, size // typesize * typesize)]
        schunk.append_data(chunk)
    # Not what the library reads: it cannot read all that it writes.
    write_raw(stem, data[:size // typesize * typesize])


def array(rng, stem):
    ndim = int(rng.integers(1, 5))
    shape = [int(rng.integers(1, [3000, 90, 30, 14][ndim - 1])) for _ in range(ndim)]
    chunks = [int(rng.integers(1, s + 1)) for s in shape]
    blocks = [int(rng.integers(1, c + 1)) for c in chunks]
    dtype = np.dtype(str(rng.choice(["u1", "<i2", "<f4", "<f8", ">i4", "<c16", "S3", "<U2", "<M8[s]"])))
    params = cparams_of(rng, dtype.itemsize)
    del params["typesize"]
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "U":
        data = rng.integers(32, 127, count // 4, dtype="<u4").tobytes()
    else:
        data = content(rng, count, dtype.itemsize)
    values = np.frombuffer(data, dtype=dtype).reshape(shape)
    written = blosc2.asarray(values, chunks=tuple(chunks), blocks=tuple(blocks), urlpath=stem + ".b2nd", mode="w",
                             cparams=blosc2.CParams(**params))
    del written
    write_raw(stem, data)


def edited(rng, stem):
    """A frame, in a file or a directory, that was written to here and there, with chunks that are only index entries."""
    typesize = int(rng.choice([1, 4, 8]))
    chunksize = typesize * int(rng.integers(8, 6000))
    schunk = blosc2.SChunk(chunksize=chunksize, cparams=blosc2.CParams(**cparams_of(rng, typesize)),
                           urlpath=stem + ".b2frame", mode="w", contiguous=bool(rng.integers(0, 2)))
    chunks = []
    for _ in range(int(rng.integers(1, 40))):
        data, at = content(rng, chunksize, typesize), int(rng.integers(0, len(chunks) + 1))
        edit = rng.integers(0, 6)
        if edit < 2 or not chunks:
            schunk.append_data(data)
            chunks.append(data)
        elif edit == 2:
            schunk.insert_data(at, data, copy=True)
            chunks.insert(at, data)
        elif edit == 3:
            schunk.update_data(at % len(chunks), data, copy=True)
            chunks[at % len(chunks)] = data
        elif edit == 4:
            schunk.delete_chunk(at % len(chunks))
            del chunks[at % len(chunks)]
        else:
            nan = {4: b"\0\0\xc0\x7f", 8: b"\0\0\0\0\0\0\xf8\x7f"}.get(typesize)
            special = blosc2.SpecialValue.NAN if nan and rng.integers(0, 2) else blosc2.SpecialValue.ZERO
            schunk.update_special(at % len(chunks), special)
            chunks[at % len(chunks)] = (nan if special == blosc2.SpecialValue.NAN else b"\0") * chunksize
            chunks[at % len(chunks)] = chunks[at % len(chunks)][:chunksize]
    order = rng.permutation(len(chunks))
    if len(chunks) > 1:
        schunk.reorder_offsets([int(i) for i in order])
        chunks = [chunks[i] for i in order]
    schunk.vlmeta["order"] = [int(i) for i in order]
    write_raw(stem, b"".join(chunks))


def variable(rng, stem):
    """Objects: chunks of any size, of one block or of a block for each object."""
    def thing():
        return {"n": int(rng.integers(0, 1 << 30)), "text": "ab" * int(rng.integers(0, 1 << int(rng.integers(1, 10))))}

    batches = [[thing() for _ in range(rng.integers(1, 30))] for _ in range(rng.integers(0, 12))]
    made = blosc2.BatchArray(urlpath=stem + ".b2b", mode="w") if rng.integers(0, 2) else \
        blosc2.ObjectArray(urlpath=stem + ".b2frame", mode="w")
    for batch in batches:
        made.append(batch)
    write_raw(stem, b"".join(made.schunk.decompress_chunk(i) for i in range(made.schunk.nchunks)))


def write_raw(stem, data):
    with open(stem + ".raw", "wb") as raw:
        raw.write(data)


def walk(width, count):
    """A random walk of integers of `width` bytes."""
    rng = np.random.default_rng(5)
    step = 1000 if width > 2 else 9
    steps = np.cumsum(rng.integers(-step, step + 1, count)).astype("<i8")
    return np.ascontiguousarray(steps.view(np.uint8).reshape(count, 8)[:, :width]).tobytes()


def wave():
    rng = np.random.default_rng(6)
    count = (32 << 20) // 8
    return (np.sin(np.arange(count) / 1000) + rng.normal(0, 1e-6, count)).astype("<f8").tobytes()


def text():
    return b" ".join(b"%d" % (i * i) for i in range(2_200_000))[:16 << 20]


def items(width):
    """32 MiB of a random walk."""
    return walk(min(width, 8), (32 << 20) // min(width, 8))


def bench_cases():
    """Name, item size, codec, level, filters, and what makes the data."""
    codec, f = blosc2.Codec, blosc2.Filter
    yield "blosclz-5-shuffle-4", 4, codec.BLOSCLZ, 5, [f.SHUFFLE], items
    yield "blosclz-9-none-1-text", 1, codec.BLOSCLZ, 9, [], lambda _: text()
    yield "lz4-5-none-1-text", 1, codec.LZ4, 5, [], lambda _: text()
    yield "zlib-5-shuffle-4", 4, codec.ZLIB, 5, [f.SHUFFLE], items
    yield "zstd-1-shuffle-4", 4, codec.ZSTD, 1, [f.SHUFFLE], items
    yield "zstd-5-bitshuffle-8-wave", 8, codec.ZSTD, 5, [f.BITSHUFFLE], lambda _: wave()
    yield "lz4-5-shuffle-8-wave", 8, codec.LZ4, 5, [f.SHUFFLE], lambda _: wave()
    yield "zstd-5-shuffle-bytedelta-4", 4, codec.ZSTD, 5, [f.SHUFFLE, f.BYTEDELTA], items
    yield "lz4-5-delta-shuffle-4", 4, codec.LZ4, 5, [f.DELTA, f.SHUFFLE], items
    for width in [2, 3, 4, 7, 8, 16]:
        yield f"lz4-5-shuffle-{width}", width, codec.LZ4, 5, [f.SHUFFLE], items
        yield f"lz4-5-bitshuffle-{width}", width, codec.LZ4, 5, [f.BITSHUFFLE], items


def bench(out, threads):
    frames = {}
    for name, typesize, codec, level, filters, make in bench_cases():
        path = os.path.join(out, name + ".b2frame")
        if not os.path.exists(path):
            data = make(typesize)
            data = data[:len(data) // typesize * typesize]
            chunksize = (4 << 20) // typesize * typesize
            cparams = blosc2.CParams(typesize=typesize, codec=codec, clevel=level, filters=filters,
                                     filters_meta=[0] * len(filters), nthreads=1)
            blosc2.SChunk(chunksize=chunksize, data=data, cparams=cparams, urlpath=path, mode="w", contiguous=True)
        with open(path, "rb") as file:
            stored = file.read()
        for how, count in [("one", 1), ("all", threads)]:
            frames[name, how] = blosc2.schunk_from_cframe(stored, copy=True)
            frames[name, how].dparams = blosc2.DParams(nthreads=count)
    print(" ".join(name for name, how in frames if how == "one"), flush=True)
    buffer = bytearray(b"\1" * (4 << 20))
    for line in sys.stdin:
        name, how = line.split()
        frame = frames[name, how]
        clock = time.thread_time if how == "one" else time.perf_counter
        began = clock()
        for i in range(frame.nchunks):
            frame.decompress_chunk(i, dst=buffer)
        print(clock() - began, flush=True)


WIDTH = 8192
# Name, codec, shapes of a chunk and of a block; None: what the library chooses.
BENCH_ARRAYS = [
    ("zstd", blosc2.Codec.ZSTD, None, None),
    ("lz4", blosc2.Codec.LZ4, None, None),
    ("blocks", blosc2.Codec.ZSTD, (128, WIDTH), (8, WIDTH)),
]


def opened(path):
    if path.endswith(".npy"):
        return np.load(path, mmap_mode="r")
    if path.endswith(".zarr"):
        return importlib.import_module("zarr").open_group(path, mode="r")["data"]
    return blosc2.open(path)


def tensorstore(path):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path + "/data/"}}
    return importlib.import_module("tensorstore").open(spec, read=True).result().read().result()


def arrays(out, size, modules):
    """Smooth 32-bit floats in two dimensions."""
    rows = max(size // 4 // WIDTH, 128)
    y, x = np.arange(rows, dtype="<f4")[:, None], np.arange(WIDTH, dtype="<f4")
    data = np.round(np.sin(x / 100) * np.cos(y / 77) * 1000) / np.float32(8)
    for name, codec, chunks, blocks in BENCH_ARRAYS:
        cparams = blosc2.CParams(codec=codec, clevel=5, filters=[blosc2.Filter.SHUFFLE])
        path = os.path.join(out, name + ".b2nd")
        blosc2.asarray(data, chunks=chunks, blocks=blocks, cparams=cparams, urlpath=path, mode="w")
    for name in modules:
        importlib.import_module(name)
    corners = np.random.default_rng(1).integers(0, [rows - 64, WIDTH - 64], (200, 2)).tolist()
    print("ready", flush=True)
    for line in sys.stdin:
        what, path = line.rstrip("\n").split(" ", 1)
        began = time.perf_counter()
        if what == "load":
            answer = np.load(path).nbytes
        elif what == "read":
            answer = opened(path)[:].nbytes
        elif what == "tensorstore":
            answer = tensorstore(path).nbytes
        else:
            array = opened(path)
            answer = sum(np.array(array[i:i + 64, j:j + 64]).nbytes for i, j in corners)
            del array  # The mount is in use as long as it is mapped.
        seconds = time.perf_counter() - began
        print(seconds if answer else "nothing", flush=True)


def main():
    out = sys.argv[2]
    os.makedirs(out, exist_ok=True)
    if sys.argv[1] == "bench":
        bench(out, int(sys.argv[3]))
        return
    if sys.argv[1] == "arrays":
        arrays(out, int(sys.argv[3]), sys.argv[4:])
        return
    if sys.argv[1] == "own":
        large_chunk(os.path.join(out, "one_large_chunk.b2frame"))
        all_chunks_deleted(os.path.join(out, "all_chunks_deleted.b2frame"))
        small_chunks(os.path.join(out, "small_chunks.b2frame"))
        small_special_chunks(os.path.join(out, "small_special_chunks.b2frame"))
        archive(os.path.join(out, "../archive.b2z"))
        stores(os.path.join(out, "../stores"))
        return
    rng = np.random.default_rng(int(sys.argv[3]))
    for i in range(int(sys.argv[4])):
        stem = os.path.join(out, f"{i:05}")
        [array, frame, edited, frame, array, variable][i % 6](rng, stem)


main()
