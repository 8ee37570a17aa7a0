"""Measures a Blosc2 array over HTTP, mounted and in Python: remote.py PROGRAM FOLDER [WORD...]

Prints the requests and the bytes that nginx has logged, the round trips at a delay of 50 ms, and a whole read beside
what curl gets with eight connections. The windows of the Python module are those of python-blosc2 as well. FOLDER gets the array, of 102 MiB by default (256 MiB decoded): FZMFS_BENCH_MIB
sets the decoded size, FZMFS_BENCH_ROUNDS the rounds (5; 0: counts alone). An array is measured if its name holds one of
the WORDs: whole rows, squares, pages. FZMFS_BENCH_TABLE names a file that gets each row, and with FZMFS_BENCH_LOG each
request is shown.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import blosc2
import numpy as np

PROGRAM, FOLDER = (os.path.abspath(path) for path in sys.argv[1:3])
SIDE = int((int(os.environ.get("FZMFS_BENCH_MIB", "256")) << 18) ** 0.5)
ROUNDS = int(os.environ.get("FZMFS_BENCH_ROUNDS", "5"))
DELAY = 50
CONNECTIONS = 8
NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
FAR = os.path.join(os.path.dirname(__file__), "../support/far.py")
NAME = "x.b2nd"
READ = """
import hashlib, sys
with open(sys.argv[1] + "/data.npy", "rb", buffering=0) as file:
    sums = hashlib.blake2b()
    while piece := file.read(1 << 20):
        sums.update(piece) if len(sys.argv) > 2 else None
print(sums.hexdigest())
"""

WINDOW = """
import sys, time
import {package}
row, column = map(int, sys.argv[2:])
start = time.perf_counter()
window = {array}[row:row + 64, column:column + 64]
print(int(window.sum(dtype="u8")), time.perf_counter() - start)
"""
# Of a mount, and without one.
NUMPY = WINDOW.format(package="numpy", array='numpy.load(sys.argv[1] + "/data.npy", mmap_mode="r")')
ZARR = WINDOW.format(package="zarr", array='zarr.open_group(sys.argv[1] + "/data.zarr", mode="r")["data"]')
OURS = WINDOW.format(package="fzmfs", array='fzmfs.open(sys.argv[1])["data"]')
THEIRS = WINDOW.format(package="blosc2, fsspec, aiohttp", array="blosc2.open(sys.argv[1], lazy=True)")
# Into memory that is there: where the machine has to fetch it first, that takes as long as the reading.
LOADED = """
import sys, time
import fzmfs, numpy
out = numpy.ones((int(sys.argv[2]),) * 2, "u4")
start = time.perf_counter()
fzmfs.open(sys.argv[1])["data"].read(out=out)
print(time.perf_counter() - start)
"""


def row(what: str, measured: str, against: str = "", ratio: str = "", aim: str = "") -> None:
    print(f"{what:<62} {measured:>16} {against:>16} {ratio:>8}  {aim}", flush=True)
    if table := os.environ.get("FZMFS_BENCH_TABLE"):
        with open(table, "a", encoding="ascii") as file:
            file.write("\t".join((what, measured, against, ratio, aim)) + "\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nginx:
    """nginx with the files in FOLDER, and its log."""

    def __init__(self) -> None:
        self.dir, self.port = tempfile.mkdtemp(), free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.dir}/tmp;" for kind in kinds)
        with open(f"{self.dir}/conf", "w", encoding="ascii") as file:
            file.write(
                f"{user} daemon off; worker_processes 1; pid {self.dir}/pid; error_log {self.dir}/error; events {{}}\n"
                f"http {{ {temporary} sendfile on; keepalive_requests 100000;\n"
                "log_format asked '$body_bytes_sent $http_range $status $msec $request_time';\n"
                f"access_log {self.dir}/log asked;\n"
                f"server {{ listen 127.0.0.1:{self.port}; root {FOLDER}; }} }}\n"
            )
        self.process = subprocess.Popen([NGINX, "-e", f"{self.dir}/error", "-c", f"{self.dir}/conf"])
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            time.sleep(0.01)
        self.log()

    def log(self) -> list[int]:
        """The bytes of the body of each request since the last call."""
        time.sleep(0.1)
        with open(f"{self.dir}/log", "r+", encoding="ascii") as file:
            lines = file.readlines()
            file.truncate(0)
        if os.environ.get("FZMFS_BENCH_LOG"):
            print("".join(lines), end="")
        return [int(line.split()[0]) for line in lines]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)


class Mount:
    """A mount of the array, for as long as the block runs."""

    def __init__(self, port: int, *options: str) -> None:
        self.point = tempfile.mkdtemp()
        self.command = [PROGRAM, "mount", url(port), self.point]
        self.command += [word for option in options for word in ("-o", option)]

    def __enter__(self) -> str:
        subprocess.run(self.command, check=True)
        return self.point

    def __exit__(self, *_: object) -> None:
        subprocess.run([PROGRAM, "umount", self.point], check=True)
        os.rmdir(self.point)


def script(text: str, *args: object) -> list[str]:
    command = [sys.executable, "-c", text, *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def window(text: str, source: str, corner: list[int]) -> float:
    """Opens and reads a window; the seconds of both, without starting Python."""
    total, seconds = script(text, source, *corner)
    row, column = corner
    assert int(total) == int(data[row : row + 64, column : column + 64].sum(dtype="u8"))
    return float(seconds)


def mounted(text: str, port: int, corner: list[int]) -> float:
    """The same through a mount, and mounting, without taking it down."""
    start = time.perf_counter()
    with Mount(port) as point:
        return time.perf_counter() - start + window(text, point, corner)


def opened(text: str, port: int, corner: list[int]) -> float:
    return window(text, url(port), corner)


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/{NAME}"


def loaded(port: int) -> float:
    return float(script(LOADED, url(port), SIDE)[0])


def whole(port: int, *options: str) -> float:
    """Mounts, and reads the whole array; seconds of both."""
    start = time.perf_counter()
    with Mount(port, *options) as point:
        with open(f"{point}/data.npy", "rb", buffering=0) as file:
            buffer = bytearray(1 << 20)
            while file.readinto(buffer):
                pass
        return time.perf_counter() - start


def cat(port: int) -> float:
    start = time.perf_counter()
    subprocess.run([PROGRAM, "cat", url(port), "data.raw"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def curl(port: int) -> float:
    """Fetches the stored file by ranges, over eight connections."""
    start, part = time.perf_counter(), -(-stored // CONNECTIONS)
    ranges = [f"{at}-{min(at + part, stored) - 1}" for at in range(0, stored, part)]
    curls = [subprocess.Popen(["curl", "-sf", "-o", "/dev/null", "-r", part, url(port)]) for part in ranges]
    assert not any([process.wait() for process in curls])
    return time.perf_counter() - start


def least(corner: list[int], blocks: tuple[int, ...]) -> float:
    """The stored bytes of the blocks in the pages of a window, and in that of the header of data.npy."""
    row, column = corner
    begin = len(header)
    pages = {0} | {(begin + (r * SIDE + c) * 4) // 4096 for r in range(row, row + 64) for c in (column, column + 63)}
    touched = set()
    for page in pages:
        for at in range(max(page * 1024 - begin // 4, 0), (page + 1) * 1024 - begin // 4):
            touched.add((at // SIDE // blocks[0], at % SIDE // blocks[1]))
    return len(touched) * stored * blocks[0] * blocks[1] / SIDE**2


def windows(nginx: Nginx, name: str, blocks: tuple[int, ...]) -> None:
    """Requests and bytes of windows: each in as few rows of blocks as can be, and anywhere."""
    inside = [[row // blocks[0] * blocks[0] if blocks[0] >= 64 else row, column] for row, column in corners]
    for where, places in (("in a row of blocks", inside), ("anywhere", corners)):
        lower = statistics.median(least(corner, blocks) for corner in places) / 1e3
        for way, read in WAYS.items():
            found = []
            for corner in places:
                read(nginx.port, corner)
                log = nginx.log()
                found.append((len(log), sum(log) / 1e3))
            requests, sent = (statistics.median(values) for values in zip(*found))
            aims = ("<= 4", "<= 250") if "fzmfs" in way else ("", "")
            row(f"{name}, {where}: {way}: requests", f"{requests}", aim=aims[0])
            against = f"{lower:.0f} in its pages" if "mmap" in way else ""
            row("  KB", f"{sent:.0f}", against, aim=aims[1])


def counts(nginx: Nginx) -> None:
    with Mount(nginx.port) as point:
        for aim in (stored // (8 << 20) + 4, 0):
            assert script(READ, point, "sum") == [expected]
            log = nginx.log()
            name = "mount and a whole read" if aim else "a second read"
            row(f"  {name}: requests", f"{len(log)}", aim=f"<= {aim}")
            row("  bytes, of the stored", f"{sum(log) / stored:.4f} x", aim="<= 1.02 x" if aim else "0")
    with tempfile.TemporaryDirectory() as cache:
        for what in ("", "second "):
            with Mount(nginx.port, f"remote_cache={cache}") as point:
                assert script(READ, point, "sum") == [expected]
            log = nginx.log()
            if what:
                row("  a second mount with remote_cache, a whole read: requests", f"{len(log)}", aim="1")
                row("  bytes", f"{sum(log)}", aim="0")


def speeds(nginx: Nginx, delay: int, link: int) -> None:
    command = [sys.executable, FAR, str(nginx.port), str(delay), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as far:
        port = int(far.stdout.readline())
        if link == LINKS[0]:
            for way, read in WAYS.items():
                near = statistics.median(read(nginx.port, corner) for corner in corners)
                times = [read(port, corner) for corner in corners]
                trips = (statistics.median(times) - near) * 1000 / delay
                # The first of a connection takes two.
                row(f"{way}, at {delay} ms, and without", f"{statistics.median(times) * 1e3:.0f} ms",
                    f"{near * 1e3:.0f} ms", "", f"<= {(4 + 1) * delay} ms more")
                row("  round trips, with that of connecting", f"{trips:.1f}", aim="<= 5")
        sides: dict[str, list[float]] = {"curl": [], "mount": [], "cat": [], "Python": []}
        for _ in range(ROUNDS):
            for name, side in (("curl", curl), ("mount", whole), ("cat", cat), ("Python", loaded)):
                sides[name].append(side(port))
        far.kill()
    rate = {name: stored / statistics.median(times) / 1e6 for name, times in sides.items()}
    name = f"{delay} ms, {link >> 10} KiB on their way"
    for side in ("mount", "cat", "Python"):
        row(f"whole read at {name}: {side} / curl, {CONNECTIONS} connections", f"{rate[side]:.0f} MB/s",
            f"{rate['curl']:.0f} MB/s", f"{rate[side] / rate['curl']:.2f}", ">= 0.8")


# A window of 64 x 64.
WAYS = {
    "fzmfs.open": functools.partial(opened, OURS),
    "blosc2.open": functools.partial(opened, THEIRS),
    "fzmfs mount, data.npy by mmap": functools.partial(mounted, NUMPY),
    "fzmfs mount, data.zarr": functools.partial(mounted, ZARR),
}
LINKS = [1 << 20, 4 << 20]
# Chunks and blocks: those that python-blosc2 chooses, squares, and blocks with a page in each row.
ARRAYS = {
    "whole rows": (None, None),
    "squares": ((2048, 2048), (256, 256)),
    "pages": ((256, SIDE), (64, 1024)),
}
random = np.random.default_rng(1)
# Of 12.75 bits of 32 each.
data = random.integers(0, 6889, (SIDE, SIDE)).astype("u4")
corners = random.integers(0, SIDE - 64, (6, 2)).tolist()
npy = io.BytesIO()
np.save(npy, data)
header = npy.getvalue()[: -data.nbytes]
expected = hashlib.blake2b(npy.getbuffer()).hexdigest()
del npy
path = os.path.join(FOLDER, NAME)
os.makedirs(FOLDER, exist_ok=True)
nginx = Nginx()
try:
    for name, (chunks, blocks) in ARRAYS.items():
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        array = blosc2.asarray(data, chunks=chunks, blocks=blocks, urlpath=path, mode="w")
        stored = os.path.getsize(path)
        row(f"{name}: {array.blocks} in {array.chunks}", f"{stored / (1 << 20):.1f} MiB")
        windows(nginx, name, array.blocks)
        counts(nginx)
        for link in LINKS if ROUNDS else ():
            speeds(nginx, DELAY, link)
finally:
    nginx.end()
