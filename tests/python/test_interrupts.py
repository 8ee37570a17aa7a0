"""Ctrl-C: what waits for a server, and what decodes for minutes, ends with it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE
from numcodecs.zstd import Zstd

# 16 MiB that are not fetched at once.
CONTENT = b"".join(Zstd(level=1).encode(random.Random(number).randbytes(1 << 20)) for number in range(16))


class Server:
    """Answers requests for ranges of CONTENT; from some moment on, never."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/x.zst"
        # Requests that have come; those that are answered; with what besides.
        self.asked = 0
        self.answered = sys.maxsize
        self.status: str | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # Else each body waits 40 ms for the acknowledgment of its header.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                head = [line.decode()]
                while (line := lines.readline().decode()).strip():
                    head.append(line)
                self.asked += 1
                if self.status:
                    connection.sendall(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())
                    continue
                first, last = 0, len(CONTENT) - 1
                for field in head:
                    if field.lower().startswith("range: bytes="):
                        low, high = field.partition("=")[2].strip().split("-")
                        first = int(low) if low else len(CONTENT) - int(high)
                        last = min(int(high) if low and high else last, last)
                body = CONTENT[first : last + 1]
                connection.sendall(
                    f'HTTP/1.1 206 Partial Content\r\nETag: "a"\r\nContent-Length: {len(body)}\r\n'
                    f"Content-Range: bytes {first}-{last}/{len(CONTENT)}\r\n\r\n".encode()
                )
                if self.asked > self.answered:
                    threading.Event().wait()
                if not head[0].startswith("HEAD"):
                    connection.sendall(body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def interrupted(code: str, is_busy: Callable[[int], bool], begin: Callable[[int], None] = lambda _: None) -> str:
    """What comes of ``code`` in a process that gets Ctrl-C when it is busy with the last line. Before that, ``begin`` is
    called."""
    *before, last = code.strip().splitlines()
    lines = ["import fzmfs", *before, "print('begun', flush=True)", "input()", "try:", f"    {last}", "    print('finished')"]
    lines += ["except BaseException as error:", "    print(type(error).__name__)"]
    environment = os.environ | {"NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", "\n".join(lines)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            begin(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            end = time.monotonic() + PATIENCE
            while not is_busy(process.pid):
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            return process.communicate(timeout=PATIENCE)[0].strip()
        finally:
            process.kill()


def test_opening_what_is_never_answered_ends(server: Server) -> None:
    server.answered = 0
    assert interrupted(f"fzmfs.open({server.url!r}, timeout=86400)", lambda _: server.asked > 0) == "KeyboardInterrupt"


def test_opening_what_is_refused_again_and_again_ends(server: Server) -> None:
    server.status = "503 Service Unavailable"
    assert interrupted(f"fzmfs.open({server.url!r}, timeout=86400)", lambda _: server.asked > 1) == "KeyboardInterrupt"


@pytest.mark.parametrize("work", ["archive['data'][...]", "archive.read('data.raw')", "archive.verify()"])
def test_reading_what_is_never_answered_ends(work: str, server: Server) -> None:
    code = f"""
archive = fzmfs.open({server.url!r}, timeout=86400, dtype="u1")
{work}
"""

    def stop(_: int) -> None:
        server.answered = server.asked

    assert interrupted(code, lambda _: server.asked > server.answered, stop) == "KeyboardInterrupt"


def seconds(process: int) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """512 GiB of one byte in one frame of 40 MiB, which may hold that much: to decode it takes minutes."""
    path = tmp_path_factory.mktemp("endless") / "x.zst"
    # And two blocks of nothing.
    block = ((128 << 10) << 3 | 2).to_bytes(3, "little") + b"a" + bytes(6)
    last = ((128 << 10) << 3 | 3).to_bytes(3, "little") + b"a"
    head = b"\x28\xb5\x2f\xfd\xc0\x38" + (1 << 39).to_bytes(8, "little")
    path.write_bytes(head + block * ((1 << 22) - 1) + last)
    return path


@pytest.mark.parametrize("work", ["archive['data'][-1]", "archive.read('data.raw', (1 << 39) - 1)", "archive.verify()"])
def test_decoding_ends(work: str, endless: Path) -> None:
    code = f"""
archive = fzmfs.open({str(endless)!r}, dtype="u1", verify="off")
{work}
"""
    before: list[float] = []
    begin = lambda process: before.append(seconds(process))  # noqa: E731
    assert interrupted(code, lambda process: seconds(process) > before[0] + 0.5, begin) == "KeyboardInterrupt"
