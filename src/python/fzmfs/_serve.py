"""``fzmfs.serve``: the program ``fzmfs serve`` as a child of this process."""

from __future__ import annotations

import errno
import html
import os
import shutil
import subprocess
import sysconfig
import tempfile
import weakref
from typing import IO, TYPE_CHECKING

from ._errors import Error

if TYPE_CHECKING:
    from types import TracebackType

# The time that a server may take to end when it is told to; it lets replies in progress end.
_PATIENCE = 15


class Server:
    """A running ``fzmfs serve``: shown in a notebook, its page.

    It ends with :meth:`stop`, with the ``with`` block, when nothing refers to it, and with this process, however that
    ends.

    Attributes:
        url: the address, with its secret path: who has it can read.
    """

    url: str

    def __init__(self, url: str, child: subprocess.Popen[str]) -> None:
        self.url = url
        self._child = child
        self._end = weakref.finalize(self, _stop, child)

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    def stop(self) -> None:
        """Ends it; again, does nothing."""
        self._end()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<fzmfs.Server {self.url if self.is_running else 'stopped'}>"

    def _repr_html_(self) -> str:
        url = html.escape(self.url)
        if not self.is_running:
            return "<p>The server is stopped.</p>"
        frame = f'<iframe src="{url}" title="fzmfs" style="width: 100%; height: 720px; border: 1px solid #8884"></iframe>'
        return f'{frame}<p><a href="{url}" target="_blank" rel="noreferrer">Open it by itself</a></p>'


def serve(source: str | os.PathLike[str], **options: object) -> Server:
    """Serves ``source``, a container or a directory of containers, to browsers and programs on this machine.

    Args:
        source: as for :func:`fzmfs.open`.
        options: those of ``fzmfs serve``, with ``_`` for ``-``: ``listen="0.0.0.0:8700"``, ``host="node7"``,
            ``verify="off"``; ``True`` for one without a value, a list for one that is repeated. By default it listens on a
            free port of this machine, and any page may show it in a frame.

    Raises:
        fzmfs.Error: the source cannot be opened, or an option is wrong.
    """
    given = {"listen": "127.0.0.1:0", "frame": "*", **options}
    command = [_program(), "serve", "--until-eof"]
    for name, value in given.items():
        if value is None or value is False:
            continue
        word = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            command += [word] if one is True else [f"{word}={os.fspath(one) if isinstance(one, os.PathLike) else one}"]
    command += ["--", os.fspath(source)]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        # It reads until all copies of the other end of its input are gone.
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, text=True, errors="replace")
        url = _url(child.stdout)
        if url is not None:
            return Server(url, child)
        _stop(child)
        said.seek(0)
        why = said.read().strip().removeprefix("fzmfs: ")
    raise Error(errno.EINVAL, why or "fzmfs serve has ended", os.fspath(source), "usage" if child.returncode == 2 else "io")


def _url(out: IO[str] | None) -> str | None:
    """The address in the first line that the program prints; none if it has ended."""
    line = out.readline() if out else ""
    _, http, address = line.rstrip("\n").rpartition("http://")
    return http + address if http else None


def _stop(child: subprocess.Popen[str]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe:
            pipe.close()
    try:
        child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _program() -> str:
    """The program of this package, or else the one that the shell finds."""
    name = "fzmfs.exe" if os.name == "nt" else "fzmfs"
    beside = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    found = [path for path in (os.path.join(place, name) for place in beside if place) if os.access(path, os.X_OK)]
    program = found[0] if found else shutil.which(name)
    if program is None:
        raise Error(errno.ENOENT, "the program fzmfs is not installed: pip install fzmfs brings it", name)
    return program
