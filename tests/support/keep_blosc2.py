"""A plugin of pytest that keeps every Blosc2 file of python-blosc2's tests: pytest -p keep_blosc2, with KEPT=DIR.

A file is kept when a test removes it and when the test ends, each content once.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
from pathlib import Path

import blosc2

KEPT = Path(os.environ["KEPT"])
SUFFIXES = {".b2nd", ".b2frame", ".b2f", ".b2", ".b2b", ".b2e", ".b2z", ".b2d"}
INDEXES = ("chunks.b2frame", "embed.b2e")
LARGEST = 64 << 20


def content(path: Path) -> list[Path]:
    """The files of the container `path`, which may be a directory."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def keep(path: Path) -> None:
    """Copies the container `path`, unless one with the same content was copied before."""
    try:
        files = content(path)
        if not files or sum(file.stat().st_size for file in files) > LARGEST:
            return
        digest = hashlib.sha256()
        for file in files:
            digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes() + b"\0")
        suffix = path.suffix if path.suffix in SUFFIXES else ".b2d" if (path / INDEXES[1]).exists() else ".b2nd"
        kept = KEPT / (digest.hexdigest()[:16] + suffix)
        if not kept.exists():
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, kept)
    except OSError:
        pass  # It is being removed.


def containers(top: Path) -> list[Path]:
    """The containers below `top`."""
    found = []
    for here, directories, files in os.walk(top):
        if any((Path(here) / index).exists() for index in INDEXES):
            found.append(Path(here))
            directories.clear()
            continue
        found += [Path(here) / name for name in files if Path(name).suffix in SUFFIXES]
    return found


def keep_below(path: object) -> None:
    """Keeps what is at or below `path`."""
    path = Path(os.fspath(path))  # type: ignore[call-overload]
    if path.is_dir():
        for found in containers(path):
            keep(found)
    elif path.suffix in SUFFIXES:
        keep(path)


def kept_before(function):
    def wrapped(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and KEPT not in Path(os.fspath(path)).parents:
            keep_below(path)
        return function(path, *args, **kwargs)

    return wrapped


os.remove = kept_before(os.remove)
os.unlink = os.remove
shutil.rmtree = kept_before(shutil.rmtree)
blosc2.remove_urlpath = kept_before(blosc2.remove_urlpath)


def pytest_collection_finish(session) -> None:
    # What the tests are made of need not be looked through after each of them.
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item) -> None:
    gc.collect()  # Stores write their archive when they are closed.
    tmp = getattr(item, "funcargs", {}).get("tmp_path")
    for top in {Path.cwd(), tmp} - {None}:
        keep_below(top)
