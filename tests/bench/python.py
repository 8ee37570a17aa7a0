"""Measures the Python module in process, against the packages of each format: python.py RATE FOLDER [WORD...]

RATE is the program that decodes a file with the Rust library and says how long that took. FOLDER gets the files. A row is
measured if its name holds one of the WORDs. Two threads on each side; every read opens its file anew, with its stored
bytes in the page cache; the sides in turn, medians of rounds. FZMFS_BENCH_MIB sets the size of the arrays (256),
FZMFS_BENCH_ROUNDS the rounds (7), FZMFS_BENCH_TABLE a file that gets each row.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time

# Read when the packages are loaded.
os.environ.update(BLOSC_NTHREADS="2", RAYON_NUM_THREADS="2", ZARR_THREADING__MAX_WORKERS="2")

import blosc2
import numpy as np
import safetensors.numpy
import zarr
import ztensor
import ztensor.numpy

import fzmfs

SIZE = int(os.environ.get("FZMFS_BENCH_MIB", "256")) << 20
ROUNDS = int(os.environ.get("FZMFS_BENCH_ROUNDS", "7"))
THREADS = 2
# Columns of the arrays.
WIDTH = 4096
# Name, codec, chunks and blocks of the Blosc2 arrays.
ARRAYS = [
    ("zstd", blosc2.Codec.ZSTD, (1024, 1024), (128, 128)),
    ("lz4", blosc2.Codec.LZ4, (1024, 1024), (128, 128)),
    ("rows, lz4", blosc2.Codec.LZ4, (256, 4096), (16, 4096)),
]
FZM = [
    ("1-D lorenzo_quant, bitshuffle, rze", "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", str(SIZE // 4)),
    ("3-D lorenzo_quant, bitshuffle, rze", "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", f"{SIZE >> 18}x256x256"),
]
wanted = sys.argv[3:]
folder = sys.argv[2]
blosc2.set_nthreads(THREADS)


def seconds(work) -> float:
    start = time.perf_counter()
    result = work()
    taken = time.perf_counter() - start
    del result
    return taken


def row(what: str, ours, theirs, unit: str, aim: str) -> None:
    """Measures two sides in turn; prints a rate of SIZE bytes, or times, and the ratio of the medians."""
    if wanted and not any(word in what for word in wanted):
        return
    first, second = [], []
    for _ in range(ROUNDS + 1):
        first.append(ours())
        second.append(theirs())
    mine, other = statistics.median(first[1:]), statistics.median(second[1:])
    ratio = mine / other
    if unit == "GB/s":
        mine, other, ratio = SIZE / mine / 1e9, SIZE / other / 1e9, other / mine
    else:
        mine, other = mine * 1e3, other * 1e3
    fields = [what, f"{mine:.2f} {unit}", f"{other:.2f} {unit}", f"{ratio:.2f}", aim]
    print(f"{fields[0]:<62} {fields[1]:>14} {fields[2]:>14} {fields[3]:>8}  {fields[4]}", flush=True)
    if table := os.environ.get("FZMFS_BENCH_TABLE"):
        with open(table, "a", encoding="ascii") as file:
            file.write("\t".join(fields) + "\n")


def opened(path: str, **options) -> fzmfs.Archive:
    return fzmfs.open(path, threads=THREADS, device="cpu", **options)


def field() -> np.ndarray:
    """Smooth 32-bit floats in two dimensions."""
    y, x = np.arange(SIZE // 4 // WIDTH, dtype="<f4")[:, None], np.arange(WIDTH, dtype="<f4")
    return np.round(np.sin(x / 100) * np.cos(y / 77) * 1000) / np.float32(8)


def arrays() -> None:
    data = field()
    corners = np.random.default_rng(1).integers(0, [len(data) - 64, WIDTH - 64], (200, 2)).tolist()
    for name, codec, chunks, blocks in ARRAYS:
        path = os.path.join(folder, "array.b2nd")
        cparams = blosc2.CParams(codec=codec, clevel=5, filters=[blosc2.Filter.SHUFFLE])
        blosc2.asarray(data, chunks=chunks, blocks=blocks, cparams=cparams, urlpath=path, mode="w")
        with opened(path) as archive:
            assert np.array_equal(archive["data"][...], data)

        def windows(array) -> None:
            for i, j in corners:
                assert array[i : i + 64, j : j + 64].shape == (64, 64)

        def whole_fzmfs() -> np.ndarray:
            with opened(path) as archive:
                return archive["data"][...]

        def windows_fzmfs() -> None:
            with opened(path) as archive:
                windows(archive["data"])

        row(f"Python, b2nd, {name}, whole / python-blosc2", lambda: seconds(whole_fzmfs),
            lambda: seconds(lambda: blosc2.open(path)[:]), "GB/s", ">= 0.95")
        row(f"Python, b2nd, {name}, 200 windows of 64 x 64 / python-blosc2", lambda: seconds(windows_fzmfs),
            lambda: seconds(lambda: windows(blosc2.open(path))), "ms", "<= 1")
        if name in ("zstd", "lz4"):
            plain = os.path.join(folder, "plain.zarr")
            with opened(path) as archive:
                grid = archive["data"].chunks
            zarr.create_array(plain, data=data, chunks=grid, compressors=None, overwrite=True)

            def whole_plain() -> np.ndarray:
                return zarr.open_array(plain, mode="r")[:]

            def whole_store() -> np.ndarray:
                return zarr.open_group(fzmfs.zarr_store(path, threads=THREADS), mode="r")["data"][:]

            def floor() -> float:
                """Processor time of both, on all threads: no store that decodes reads faster."""
                start = time.process_time()
                whole_plain()
                whole_fzmfs()
                return (time.process_time() - start) / THREADS

            row(f"Python, b2nd, {name}, zarr_store whole / plain Zarr on disk", lambda: seconds(whole_store),
                lambda: seconds(whole_plain), "GB/s", ">= 0.7")
            row(f"Python, b2nd, {name}, zarr_store whole / plain Zarr and decoding", lambda: seconds(whole_store),
                floor, "GB/s", "")


def checkpoint() -> None:
    """Tensors of many sizes, as in a model."""
    random = np.random.default_rng(1)
    tensors, left, number = {}, SIZE, 0
    while left > 0:
        for shape in ((2048, 2048), (2048,), (512, 2048), (64,)):
            weights = random.normal(size=shape).astype("f4")
            # Of few bits, so that there is something to compress.
            tensors[f"layers.{number:03}.{len(shape)}.{shape[0]}"] = (weights.view("u4") & 0xFFFF0000).view("f4")
            left -= weights.nbytes
        number += 1
    plain, packed, safe = (os.path.join(folder, name) for name in ("plain.zt", "packed.zt", "model.safetensors"))
    ztensor.numpy.save_file(tensors, plain)
    ztensor.numpy.save_file(tensors, packed, compression=True)
    safetensors.numpy.save_file(tensors, safe)
    for path in (plain, packed):
        with opened(path) as archive:
            assert {n: t.shape for n, t in archive.items()} == {n: t.shape for n, t in tensors.items()}
            assert all(np.array_equal(archive[n][...], t) for n, t in tensors.items())

    def load(path: str) -> dict[str, np.ndarray]:
        with opened(path) as archive:
            return {name: tensor[...] for name, tensor in archive.items()}

    for name, path in (("raw", plain), ("Zstandard", packed)):
        row(f"Python, zTensor, {name}, checkpoint / its package", lambda: seconds(lambda: load(path)),
            lambda: seconds(lambda: ztensor.numpy.load_file(path, copy=True)), "ms", "<= 1")
    row("Python, zTensor, raw, checkpoint / safetensors", lambda: seconds(lambda: load(plain)),
        lambda: seconds(lambda: safetensors.numpy.load_file(safe)), "ms", "<= 1.11")


def fields(rate: str) -> None:
    for name, stages, shape in FZM:
        path = os.path.join(folder, "field.fzm")
        subprocess.run(["scripts/make-fzm", "--stages", stages, "--shape", shape, path], check=True)
        with subprocess.Popen([rate, "rate", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rust:

            def decode() -> float:
                rust.stdin.write("\n")
                rust.stdin.flush()
                return float(rust.stdout.readline())

            def whole() -> np.ndarray:
                with opened(path) as archive:
                    return archive["data"][...]

            row(f"Python, FZM, {name}, whole / Rust", lambda: seconds(whole), decode, "GB/s", ">= 0.9")
            with opened(path) as archive:
                out = np.empty(archive["data"].shape, archive["data"].dtype)

            def into() -> np.ndarray:
                with opened(path) as archive:
                    return archive["data"].read(out=out)

            row(f"Python, FZM, {name}, into memory that exists / Rust", lambda: seconds(into), decode, "GB/s", "")
            rust.stdin.close()

        def halves(threads: int) -> float:
            with fzmfs.open(path, threads=1, device="cpu") as archive:
                flat = archive["data"]
                half = len(flat) // 2

                def read(part: slice) -> None:
                    flat[part]

                parts = [slice(half), slice(half, None)]
                begin = time.perf_counter()
                if threads == 1:
                    list(map(read, parts))
                else:
                    readers = [threading.Thread(target=read, args=(part,)) for part in parts]
                    [reader.start() for reader in readers]
                    [reader.join() for reader in readers]
                return time.perf_counter() - begin

        row(f"Python, FZM, {name}, halves by two threads / by one", lambda: halves(2), lambda: halves(1), "GB/s", "")


print(f"{'what':<62} {'measured':>14} {'against':>14} {'ratio':>8}  aim", flush=True)
arrays()
checkpoint()
fields(sys.argv[1])
