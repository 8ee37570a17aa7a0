"""Writes zTensor files with the official package, and what they hold beside them.

make_ztensor.py random DIR SEED COUNT   random files: NNN.zt, and NNN/NAME.bin for the bytes of every part
make_ztensor.py bench DIR MIB           files to measure with; then answers lines on standard input with seconds
"""

import os
import sys
import time

import numpy
import ztensor

SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4,
         "u64": 8}


def random_bytes(random, size):
    """Noise, or runs that compress."""
    if random.integers(2):
        return random.integers(0, 256, size, dtype="u1")
    return numpy.repeat(random.integers(0, 256, size // 64 + 1, dtype="u1"), 64)[:size].copy()


def keep(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data.tobytes())


def one(folder, number, random):
    path = os.path.join(folder, f"{number:03}")
    os.mkdir(path)
    canonical = bool(random.integers(2))
    writer = ztensor.Writer(path + ".zt", canonical=canonical)
    objects = []
    for i in range(random.integers(1, 9)):
        kind = random.integers(4)
        encoding = None if canonical else [None, "zt.zstd-seekable/1"][random.integers(2)]
        if kind == 0:
            # Compressed sparse rows.
            dense = random.random((random.integers(1, 60), random.integers(1, 60))).astype("f4")
            dense[dense < 0.8] = 0
            rows, columns = dense.nonzero()
            indptr = numpy.searchsorted(rows, numpy.arange(dense.shape[0] + 1)).astype("u8")
            parts = {"values": ("f32", dense[rows, columns]), "indices": ("u64", columns.astype("u8")),
                     "indptr": ("u64", indptr)}
            described = {}
            for role, (dtype, data) in parts.items():
                data = numpy.ascontiguousarray(data).view("u1")
                described[role] = {"dtype": dtype, "data": data, "encoding": encoding}
                keep(path, f"sparse{i}.{role}.bin", data)
            objects.append((f"sparse{i}", list(dense.shape), described, "zt.sparse_csr/1"))
            keep(path, f"sparse{i}.dense", dense)
            continue
        dtype = list(SIZES)[random.integers(len(SIZES))]
        shape = [int(n) for n in random.integers(0, 40, random.integers(0, 4))]
        if kind == 1:
            shape = [int(random.integers(1, 700_000))]
        data = random_bytes(random, int(numpy.prod(shape, dtype="u8")) * SIZES[dtype])
        name = ["dense", "layer/dense", "a.b/c d"][random.integers(3)] + str(i)
        objects.append((name, shape, {"data": {"dtype": dtype, "data": data, "encoding": encoding}}, "dense"))
        keep(path, name.replace("/", "|") + ".data.bin", data)
    # The canonical form wants its objects in order.
    for name, shape, parts, layout in sorted(objects, key=lambda o: o[0]) if canonical else objects:
        parts = {role: {k: v for k, v in part.items() if v is not None} for role, part in parts.items()}
        writer.add_object(name, shape, parts, layout=layout)
    writer.finish()


def bench(folder, size):
    for count in (2000, 100_000):
        writer = ztensor.Writer(os.path.join(folder, f"{count}.zt"))
        data = numpy.zeros(64, "u1")
        for i in range(count):
            writer.add(f"model/layer{i // 100}/weight{i}", data, [4, 4], "f32")
        writer.finish()
    writer = ztensor.Writer(os.path.join(folder, "one.zt"))
    array = numpy.random.default_rng(1).integers(0, 256, size, dtype="u1")
    writer.add("w", array, [size // 4], "f32")
    writer.finish()
    numpy.save(os.path.join(folder, "w.npy"), array.view("f4"))
    with open(os.path.join(folder, "one.zt"), "rb") as file:
        at = file.read().find(array[:4096].tobytes())
    print(at, flush=True)
    for line in sys.stdin:
        what, path = line.rstrip("\n").split(" ", 1)
        start = time.perf_counter()
        if what == "open":
            answer = len(ztensor.open(path).keys())
        else:
            answer = len(numpy.load(path))
        seconds = time.perf_counter() - start
        print(seconds if answer else "nothing", flush=True)


def main():
    if sys.argv[1] == "bench":
        return bench(sys.argv[2], int(sys.argv[3]))
    random = numpy.random.default_rng(int(sys.argv[3]))
    for number in range(int(sys.argv[4])):
        one(sys.argv[2], number, random)


main()
