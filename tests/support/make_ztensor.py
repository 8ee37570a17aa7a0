"""Writes zTensor files with the official package, and what they hold beside them.

make_ztensor.py random DIR SEED COUNT   random files: NNN.zt, NNN.json for what a reader has to find, and NNN/
                                        with the bytes of every part
make_ztensor.py model FILE              48 tensors of noise, 1 MiB each
make_ztensor.py bench DIR MIB           files to measure with; then answers lines on standard input with seconds
"""

import json
import os
import sys
import time

import numpy
import ztensor

# What a part may be: its stored type, the type it stands for, what a .npy header calls it, bytes an element.
# NumPy has no header for elements of half a byte.
TYPES = [("f64", None, "<f8", 8), ("f32", None, "<f4", 4), ("f16", None, "<f2", 2), ("bf16", None, "<V2", 2),
         ("i8", None, "|i1", 1), ("i16", None, "<i2", 2), ("i32", None, "<i4", 4), ("i64", None, "<i8", 8),
         ("u8", None, "|u1", 1), ("u16", None, "<u2", 2), ("u32", None, "<u4", 4), ("u64", None, "<u8", 8),
         ("u8", "bool", "|b1", 1), ("u8", "f8_e4m3fn", "|V1", 1), ("u8", "f8_e5m2", "|V1", 1),
         ("u8", "f8_e4m3fnuz", "|V1", 1), ("u8", "f8_e8m0", "|V1", 1), ("u8", "f4_e2m1", None, 0.5),
         ("f32", "complex64", "<c8", 8), ("f64", "complex128", "<c16", 16)]

# Names, and the paths that they are in a directory.
NAMES = [("dense", "dense"), ("layer/dense", "layer/dense"), ("a.b/c d", "a.b/c d"), ("../up", "%2E%2E/up"),
         ("a//b", "a/%/b"), ("./50%/\n", "%2E/50%25/%0A"), ("\u00e9\u4e2d", "\u00e9\u4e2d")]


def random_bytes(random, size):
    """Noise, or runs that compress."""
    if random.integers(2):
        return random.integers(0, 256, size, dtype="u1")
    return numpy.repeat(random.integers(0, 256, size // 64 + 1, dtype="u1"), 64)[:size].copy()


def dense(random):
    """A tensor of any type: its shape and its part."""
    stored, logical, descr, width = TYPES[random.integers(len(TYPES))]
    shape = [int(n) for n in random.integers(0, 40, random.integers(0, 4))]
    if not random.integers(4):
        shape = [int(random.integers(1, 700_000))]
    if width < 1:
        shape.append(2)
    size = int(numpy.prod(shape, dtype="u8") * numpy.float64(width))
    data = random.integers(0, 2, size, dtype="u1") if logical == "bool" else random_bytes(random, size)
    return shape, {"data": (stored, logical, descr, data)}


def plain(array):
    """A part of plain numbers."""
    return (array.dtype.kind + str(array.dtype.itemsize * 8), None, array.dtype.str, array.reshape(-1).view("u1"))


def sparse(random):
    """A matrix that is mostly zeros, as rows or as cells: its layout, shape and parts."""
    shape = [int(n) for n in random.integers(1, 60, 2)]
    matrix = random.random(shape).astype(["f4", "f8"][random.integers(2)])
    matrix[matrix < random.random()] = 0
    index = ["u4", "u8"][random.integers(2)]
    rows, columns = (axis.astype(index) for axis in matrix.nonzero())
    values = plain(matrix[rows, columns])
    if random.integers(2):
        return "zt.sparse_coo/1", shape, {"values": values, "coords": plain(numpy.stack([rows, columns]))}
    indptr = numpy.searchsorted(rows, numpy.arange(shape[0] + 1)).astype(index)
    return "zt.sparse_csr/1", shape, {"values": values, "indices": plain(columns), "indptr": plain(indptr)}


def quantised(random):
    """A layout that nobody else knows."""
    shape = [int(n) for n in random.integers(1, 60, 2)]
    return "org.example.quantised/1", shape, {
        "codes": plain(random_bytes(random, shape[0] * shape[1])),
        "scales": plain(random.random(shape[0]).astype("f4")),
    }


def one(folder, number, random):
    """Writes a file, the bytes of its parts, and beside them what a reader has to find."""
    path = os.path.join(folder, f"{number:03}")
    os.mkdir(path)
    canonical = bool(random.integers(2))
    objects = []
    for i in range(random.integers(0, 9)):
        encoded = not canonical and random.integers(2)
        kind = random.integers(8)
        name, file = (f"{name}{i}" for name in NAMES[random.integers(len(NAMES))])
        if kind == 0:
            layout, shape, parts = quantised(random)
        elif kind < 3:
            layout, shape, parts = sparse(random)
        else:
            layout, (shape, parts) = "dense", dense(random)
        described, wanted = {}, {}
        for role, (stored, logical, descr, data) in parts.items():
            described[role] = {"dtype": stored, "data": data}
            if logical:
                described[role]["logical"] = logical
            if encoded:
                described[role]["encoding"] = "zt.zstd-seekable/1"
            count = data.size // max(1, numpy.dtype(descr).itemsize) if descr else 0
            of_part = shape if layout == "dense" else [2, count // 2] if role == "coords" else [count]
            wanted[role] = {"bytes": f"{number:03}/{i}.{role}", "descr": descr, "shape": repr(tuple(of_part))}
            data.tofile(os.path.join(folder, wanted[role]["bytes"]))
        objects.append((name, shape, described, layout, {"path": file, "dense": layout == "dense", "parts": wanted}))
    # The canonical form wants its objects in the order of their names' bytes.
    if canonical:
        objects.sort(key=lambda o: o[0].encode())
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump([o[4] for o in objects], file)
    options = {"canonical": True} if canonical else {"canonical": False, "align": 1 << int(random.integers(12, 17))}
    writer = ztensor.Writer(path + ".zt", **options)
    # Half of the others are written in two goes: the second one appends.
    for place, (name, shape, described, layout, _) in enumerate(objects):
        if place and place == len(objects) // 2 and not canonical and random.integers(2):
            writer.finish()
            writer = ztensor.Writer(path + ".zt", append=True, **options)
        attributes = {"note": ["x", 1, 2.5, True, None]} if random.integers(2) else None
        writer.add_object(name, shape, described, layout=layout, attributes=attributes)
    writer.finish()


def model(file):
    random = numpy.random.default_rng(1)
    with ztensor.Writer(file) as writer:
        for i in range(48):
            writer.add(f"layer{i:02}/weight", random.integers(0, 256, 1 << 20, dtype="u1"), [1 << 18], "f32")


def bench(folder, size):
    for count in (2000, 100_000):
        writer = ztensor.Writer(os.path.join(folder, f"{count}.zt"))
        data = numpy.zeros(64, "u1")
        for i in range(count):
            writer.add(f"model/layer{i // 100:04}/weight{i:06}", data, [4, 4], "f32")
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
    if sys.argv[1] == "model":
        return model(sys.argv[2])
    random = numpy.random.default_rng(int(sys.argv[3]))
    for number in range(int(sys.argv[4])):
        one(sys.argv[2], number, random)


main()
