"""Measures `fzmfs serve` beside nginx with the decoded files: serve.py PROGRAM FOLDER

Rows: the whole array over loopback, decoded before and not; random chunks of data.zarr at 64 connections; memory of idle
connections. FOLDER gets the array, of 256 MiB decoded: FZMFS_BENCH_MIB sets that, FZMFS_BENCH_ROUNDS the rounds (5), and
FZMFS_BENCH_REQUESTS the number of chunks asked for (10,000). FZMFS_BENCH_TABLE names a file that gets each row.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time

import blosc2
import numpy as np

PROGRAM, FOLDER = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
MIB = int(os.environ.get("FZMFS_BENCH_MIB", "256"))
ROUNDS = int(os.environ.get("FZMFS_BENCH_ROUNDS", "5"))
REQUESTS = int(os.environ.get("FZMFS_BENCH_REQUESTS", "10000"))
CONNECTIONS = 64
IDLE = 1000
NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/error; worker_processes auto;
events {{ worker_connections 2048; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; client_body_temp_path {folder}/t;
proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t; uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
server {{ listen 127.0.0.1:{port}; root {folder}/decoded; }} }}
"""


def row(name: str, value: float, unit: str, beside: str) -> None:
    line = f"{name}\t{value:.3f}\t{unit}\t{beside}"
    print(line.expandtabs(12), flush=True)
    if table := os.environ.get("FZMFS_BENCH_TABLE"):
        with open(table, "a") as file:
            file.write(line + "\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Serve:
    """A server of the container that has decoded nothing."""

    def __init__(self, source: pathlib.Path):
        words = [PROGRAM, "serve", str(source), "--listen", "127.0.0.1:0", "--no-token", "--cache", f"{2 * MIB}M"]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.port = int(self.child.stdout.readline().rstrip("/\n").rsplit(":", 1)[1])

    def __enter__(self) -> Serve:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.terminate()
        self.child.wait()

    def resident(self) -> int:
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


def whole(port: int, path: str = "/data.raw") -> float:
    """Seconds for one file."""
    start = time.perf_counter()
    words = ["curl", "-sS", "-o", "/dev/null", f"http://127.0.0.1:{port}{path}"]
    subprocess.run(words, check=True)
    return time.perf_counter() - start


async def ask(port: int, paths: list[str], times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    for path in paths:
        start = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        left = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        while left:
            left -= len(await reader.read(min(left, 1 << 20)))
        times.append(time.perf_counter() - start)
    writer.close()


def chunks(port: int, paths: list[str]) -> tuple[float, float]:
    """The median and the 99th percentile of the requests, in milliseconds."""

    async def all_() -> list[float]:
        times: list[float] = []
        await asyncio.gather(*(ask(port, paths[i::CONNECTIONS], times) for i in range(CONNECTIONS)))
        return times

    times = sorted(asyncio.run(all_()))
    return 1000 * statistics.median(times), 1000 * times[len(times) * 99 // 100]


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    side = (MIB << 18) // (1 << 20)
    steps = np.random.default_rng(1).integers(0, 8, (side, 1024, 1024), dtype="u4")
    source = FOLDER / "x.b2nd"
    blosc2.asarray(np.cumsum(steps, axis=2, dtype="u4"), chunks=(1, 512, 1024), urlpath=str(source))
    subprocess.run([PROGRAM, "extract", source, FOLDER / "decoded", "data.raw", "data.zarr"], check=True)
    names = sorted(str(path.relative_to(FOLDER / "decoded")) for path in (FOLDER / "decoded/data.zarr/data/c").rglob("*"))
    names = [f"/{name}" for name in names if (FOLDER / "decoded" / name).is_file()]
    paths = random.Random(1).choices(names, k=REQUESTS)
    port = free_port()
    (FOLDER / "nginx.conf").write_text(CONFIG.format(folder=FOLDER, port=port))
    nginx = subprocess.Popen([NGINX, "-c", FOLDER / "nginx.conf", "-p", FOLDER])
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        whole(port)
        warm, cold = [], []
        for _ in range(ROUNDS):
            with Serve(source) as server:
                first = whole(server.port)
                start = time.perf_counter()
                with open(os.devnull, "wb") as null:
                    subprocess.run([PROGRAM, "cat", source, "data.raw"], stdout=null, check=True)
                cold.append((time.perf_counter() - start) / first)
                warm.append(whole(port) / min(whole(server.port) for _ in range(2)))
        row("whole file, decoded before", statistics.median(warm), "x nginx", f"{MIB} MiB; goal 0.9")
        row("whole file, not decoded", statistics.median(cold), "x fzmfs cat", "goal 0.9")
        with Serve(source) as server:
            whole(server.port)
            for name, at in ("fzmfs", server.port), ("nginx", port):
                median, last = chunks(at, paths)
                row(f"{REQUESTS} random chunks, {CONNECTIONS} connections, {name}", median, "ms p50", f"{last:.1f} ms p99")
        with Serve(source) as server:
            before = server.resident()
            idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(IDLE)]
            for one in idle:
                one.sendall(b"HEAD /data.raw HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            for one in idle:
                assert one.recv(4096).startswith(b"HTTP/1.1 200")
            row(f"{IDLE} idle connections", (server.resident() - before) / 2**20, "MiB", "goal 32")
    finally:
        nginx.terminate()
        nginx.wait()


main()
