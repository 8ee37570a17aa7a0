"""Servers that tests start, each on a port of its own: nginx, moto, which plays S3, and a proxy that makes them far."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE

ROOT = Path(__file__).parents[2]
MOTO = ROOT / "target/oracles/moto/bin/python"
# Past every proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def started(command: list[str | Path], at: int) -> Iterator[None]:
    """Runs a server until the end of the block; begins when it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", at)):
                break
            assert process.poll() is None, f"{command[0]} has ended"
            assert time.monotonic() < end, f"{command[0]} does not listen"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


class Nginx:
    """Serves the files in ``root``."""

    def __init__(self, folder: Path, at: int) -> None:
        self.root = folder / "root"
        self.url = f"http://127.0.0.1:{at}"
        self._log = folder / "access.log"
        self._taken = 0

    def take_log(self) -> list[str]:
        """The requests since the last call: method, path, status, bytes of the body."""
        # It logs a request after its answer, and before it turns to the next one: to ours.
        mark = f"/mark-{self._taken}"
        with contextlib.suppress(urllib.error.HTTPError):
            OPENER.open(self.url + mark, timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while f" {mark} " not in (text := self._log.read_text()) or not text.endswith("\n"):
            assert time.monotonic() < end, f"{mark} is not logged"
            time.sleep(0.01)
        lines = text.splitlines()[self._taken :]
        self._taken += len(lines)
        return [line for line in lines if "/mark-" not in line]


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[Nginx]:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    at, server = port(), folder / "root"
    server.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    parts = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{part}_temp_path {folder}/tmp;" for part in parts)
    (folder / "conf").write_text(
        f"{user} daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
        f"http {{ {temporary} log_format asked '$request_method $uri $status $body_bytes_sent';"
        f"access_log {folder}/access.log asked; server {{ listen 127.0.0.1:{at}; root {server}; }} }}"
    )
    with started([NGINX, "-p", folder, "-e", f"{folder}/error.log", "-c", f"{folder}/conf"], at):
        yield Nginx(folder, at)


class Moto:
    """S3 with the bucket ``bucket``; anybody may write and read."""

    def __init__(self, at: int) -> None:
        self.endpoint = f"http://127.0.0.1:{at}"
        self.put("", b"")

    def put(self, key: str, content: bytes) -> None:
        request = urllib.request.Request(f"{self.endpoint}/bucket/{key}", content, method="PUT")
        request.add_header("Content-Type", "application/octet-stream")
        request.add_header("x-amz-acl", "public-read")
        with OPENER.open(request, timeout=PATIENCE) as reply:
            assert reply.status == 200


@contextlib.contextmanager
def moto() -> Iterator[Moto]:
    if not MOTO.exists():
        pytest.skip("moto is not installed: scripts/oracle moto")
    at = port()
    with started([MOTO, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(at)], at):
        yield Moto(at)


@contextlib.contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """The server at ``url``, further away."""
    proxy = [sys.executable, ROOT / "tests/support/far.py", url.rpartition(":")[2], str(round(seconds * 1000))]
    with subprocess.Popen(proxy, stdout=subprocess.PIPE, text=True) as far:
        try:
            yield f"http://127.0.0.1:{int(far.stdout.readline())}"
        finally:
            far.kill()
