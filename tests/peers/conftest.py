"""What the suites of scripts/peers share: the program, mounts, the sources of other projects, and the counts that they print."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = os.environ["FZMFS_PROGRAM"]
_SAID: list[str] = []


def source(name: str) -> Path:
    """The folder with the source of another project, which scripts/peers has unpacked; without it, the module is skipped."""
    folder = Path(os.environ.get(name) or "/nonexistent")
    if not folder.is_dir():
        pytest.skip(f"{name} is not a folder", allow_module_level=True)
    return folder


def said(line: str) -> None:
    """Prints a line after the tests."""
    _SAID.append(line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _SAID:
        terminalreporter.write_line(line)


def pytest_runtest_setup(item: pytest.Function) -> None:
    """A mark of xarray's: the test is not for these parameters. What honours it is not in its package."""
    for mark in item.iter_markers("skip_if_param"):
        given = dict(mark.kwargs)
        reason, condition = given.pop("reason", ""), given.pop("condition", True)
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if condition and given.items() <= params.items():
            pytest.skip(reason)


def run(*args: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, check=False)


def cat(path: Path, name: str = "data.raw", *options: str) -> bytes:
    done = run("cat", *options, path, name)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@contextlib.contextmanager
def mounted(path: Path, point: Path, *options: str) -> Iterator[Path]:
    if not os.access("/dev/fuse", os.W_OK):
        pytest.skip("there is no /dev/fuse")
    point.mkdir(exist_ok=True)
    done = run("mount", *options, path, point)
    assert done.returncode == 0, done.stderr.decode()
    try:
        yield point
    finally:
        done = run("umount", point)
        assert done.returncode == 0, done.stderr.decode()
