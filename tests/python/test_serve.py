"""``fzmfs.serve``: the page in a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import fzmfs
import pytest
from conftest import PATIENCE

PROGRAM = os.environ.get("FZMFS_PROGRAM") or fzmfs._serve.shutil.which("fzmfs")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="SKIPPED: the program fzmfs is not installed here")


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fzmfs._serve, "_program", lambda: PROGRAM)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        return reply.read()


def test_a_source_is_served_until_it_is_stopped(b2nd: str) -> None:
    with fzmfs.serve(b2nd) as server:
        assert json.loads(get(server.url + "info.json"))["format"] == "blosc2"
        assert get(server.url + "data.png?slice=").startswith(b"\x89PNG")
        shown = server._repr_html_()
        assert f'<iframe src="{server.url}"' in shown and server.is_running
    assert not server.is_running and "stopped" in repr(server) + server._repr_html_()
    server.stop()
    with pytest.raises(OSError):
        get(server.url)


def test_the_module_runs_the_program() -> None:
    assert PROGRAM is not None
    path = os.pathsep.join([os.path.dirname(os.path.abspath(PROGRAM)), os.environ["PATH"]])
    for arguments, code, said in [(["--version"], 0, "fzmfs "), (["info", "nothing"], 1, "nothing: No such file")]:
        command = [sys.executable, "-m", "fzmfs", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
        assert ran.returncode == code and said in ran.stdout + ran.stderr, ran


def test_options_are_those_of_the_program(b2nd: str) -> None:
    with fzmfs.serve(Path(b2nd), no_token=True, host=["a.example", "b.example"], verify="off") as server:
        assert server.url.count("/") == 3
        request = urllib.request.Request(server.url, headers={"Host": "b.example"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            assert "frame-ancestors 'self' *" in reply.headers["Content-Security-Policy"]


def test_what_cannot_be_served_is_an_error(b2nd: str, tmp_path: Path) -> None:
    with pytest.raises(fzmfs.Error, match="No such file"):
        fzmfs.serve(tmp_path / "missing.fzm")
    with pytest.raises(fzmfs.Error, match="bogus") as caught:
        fzmfs.serve(b2nd, bogus=3)
    assert caught.value.kind == "usage"


def test_a_server_ends_with_the_process_that_has_started_it(b2nd: str) -> None:
    code = (
        "import os, sys, fzmfs\n"
        "fzmfs._serve._program = lambda: sys.argv[1]\n"
        "server = fzmfs.serve(sys.argv[2])\n"
        "print(server._child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, PROGRAM, b2nd], stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    pid = int(run.stdout)
    pipe = os.pidfd_open(pid) if _is_there(pid) else None
    if pipe is not None:
        import select

        assert select.select([pipe], [], [], PATIENCE)[0], "it is still there"
        os.close(pipe)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
