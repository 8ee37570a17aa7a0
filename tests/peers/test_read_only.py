"""Every call for which pjdfstest wants EROFS on a read-only file system, and those that Linux has besides, on a mount.

Its own cases run on FreeBSD alone, where they make a file system and mount it again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import mounted

DATA = Path(__file__).parents[1] / "data"
LIBC = ctypes.CDLL(None, use_errno=True)


def called(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture(scope="module", params=["a container", "a directory", "a plain file of a directory"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str, str]]:
    """A folder of a mount, and in it the names of a file, of a directory that is empty or not, and of a link."""
    folder = tmp_path_factory.mktemp("mount")
    if request.param == "a container":
        with mounted(DATA / "zstd/v07-level03.zst", folder / "m") as point:
            yield point, "data.raw", "chunks", "v07-level03"
        return
    (folder / "runs/more").mkdir(parents=True)
    shutil.copy(DATA / "zstd/v07-level03.zst", folder / "runs/x.zst")
    (folder / "runs/plain").write_text("text")
    (folder / "runs/link").symlink_to("plain")
    with mounted(folder / "runs", folder / "m") as point:
        if request.param == "a directory":
            yield point, "x.zst/data.raw", "x.zst", "x.zst/x"
        else:
            yield point, "plain", "more", "link"


def opened(path: Path, flags: int) -> None:
    os.close(os.open(path, flags, 0o644))


def through(path: Path, call: Callable[[int], object]) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        call(fd)
    finally:
        os.close(fd)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as each:
        each.bind(str(path))


def link_into(path: Path, flags: int) -> None:
    called(LIBC.renameat2(-100, os.fsencode(path), -100, os.fsencode(path.with_name("none")), flags))


FILE: dict[str, Callable[[Path], object]] = {
    "open O_WRONLY": lambda f: opened(f, os.O_WRONLY),
    "open O_RDWR": lambda f: opened(f, os.O_RDWR),
    "open O_APPEND": lambda f: opened(f, os.O_WRONLY | os.O_APPEND),
    "open O_RDONLY O_TRUNC": lambda f: opened(f, os.O_RDONLY | os.O_TRUNC),
    "open O_WRONLY O_CREAT": lambda f: opened(f, os.O_WRONLY | os.O_CREAT),
    "truncate": lambda f: os.truncate(f, 1),
    "chmod": lambda f: os.chmod(f, 0o600),
    "fchmod": lambda f: through(f, lambda fd: os.fchmod(fd, 0o600)),
    "chown": lambda f: os.chown(f, os.getuid(), os.getgid()),
    "fchown": lambda f: through(f, lambda fd: os.fchown(fd, os.getuid(), os.getgid())),
    "utimensat": lambda f: os.utime(f, (1, 1)),
    "utimensat UTIME_NOW": lambda f: os.utime(f),
    "futimens": lambda f: through(f, lambda fd: os.utime(fd, (1, 1))),
    "setxattr": lambda f: os.setxattr(f, "user.x", b"1"),
    "fsetxattr": lambda f: through(f, lambda fd: os.setxattr(fd, "user.x", b"1")),
    "removexattr": lambda f: os.removexattr(f, "user.fzmfs.format"),
    "fremovexattr": lambda f: through(f, lambda fd: os.removexattr(fd, "user.fzmfs.format")),
    "access W_OK": lambda f: called(LIBC.access(os.fsencode(f), os.W_OK)),
    "unlink": os.unlink,
    "rename": lambda f: os.rename(f, f.with_name("none")),
    "renameat2 RENAME_NOREPLACE": lambda f: link_into(f, 1),
    "link": lambda f: os.link(f, f.with_name("none")),
}
FOLDER: dict[str, Callable[[Path], object]] = {
    "open O_CREAT": lambda d: opened(d / "none", os.O_RDONLY | os.O_CREAT),
    "open O_CREAT O_EXCL": lambda d: opened(d / "none", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "mkdir": lambda d: os.mkdir(d / "none"),
    "mkfifo": lambda d: os.mkfifo(d / "none"),
    "mknod": lambda d: os.mknod(d / "none", stat.S_IFREG | 0o644),
    "bind": lambda d: bind(d / "none"),
    "symlink": lambda d: os.symlink("to", d / "none"),
    "rmdir": os.rmdir,
    "rename": lambda d: os.rename(d, d.with_name("none")),
    "chmod": lambda d: os.chmod(d, 0o700),
    "fchmod": lambda d: through(d, lambda fd: os.fchmod(fd, 0o700)),
    "chown": lambda d: os.chown(d, os.getuid(), os.getgid()),
    "utimensat": lambda d: os.utime(d, (1, 1)),
    "setxattr": lambda d: os.setxattr(d, "user.x", b"1"),
    "access W_OK": lambda d: called(LIBC.access(os.fsencode(d), os.W_OK)),
}
LINK: dict[str, Callable[[Path], object]] = {
    "unlink": os.unlink,
    "rename": lambda s: os.rename(s, s.with_name("none")),
    "link": lambda s: os.link(s, s.with_name("none"), follow_symlinks=False),
    "lchown": lambda s: os.lchown(s, os.getuid(), os.getgid()),
    "utimensat AT_SYMLINK_NOFOLLOW": lambda s: os.utime(s, (1, 1), follow_symlinks=False),
    "lsetxattr": lambda s: os.setxattr(s, "trusted.x", b"1", follow_symlinks=False),
}
# O_TMPFILE is left out: a file system without it is asked before one that is read-only, and says EOPNOTSUPP.


def tree(point: Path) -> list[tuple[str, os.stat_result]]:
    return [(str(path), path.lstat()) for path in sorted(point.rglob("*"))]


@pytest.mark.parametrize("of", ["file", "folder", "link"])
def test_every_call_that_would_write_is_refused_with_erofs(of: str, place: tuple[Path, str, str, str]) -> None:
    point, file, folder, link = place
    path = {"file": point / file, "folder": point / folder, "link": point / link}[of]
    before = [(name, found.st_mode, found.st_size, found.st_mtime_ns, found.st_nlink) for name, found in tree(point)]
    wrong = []
    for name, call in {"file": FILE, "folder": FOLDER, "link": LINK}[of].items():
        try:
            call(path)
            wrong.append(f"{name}: it succeeded")
        except OSError as error:
            if error.errno != errno.EROFS:
                wrong.append(f"{name}: {errno.errorcode[error.errno or 0]}")
    assert not wrong, wrong
    assert before == [(name, found.st_mode, found.st_size, found.st_mtime_ns, found.st_nlink) for name, found in tree(point)]
