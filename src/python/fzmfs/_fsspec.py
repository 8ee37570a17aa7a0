"""The protocol ``fzmfs`` of fsspec: the files of a container, as a mount shows them."""

from __future__ import annotations

import errno
import inspect
import io
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.utils import tokenize  # type: ignore[import-untyped]

from . import open as open_archive
from ._archive import Archive
from ._doors import is_missing, not_a_directory, opened, token
from ._errors import Error

if TYPE_CHECKING:
    from . import _native
    from ._archive import Entry

# The most entries of a directory that are listed; `walk` of the archive has no such limit.
_LISTED = 1 << 20
# Bytes that an open file reads ahead, for reading in small steps.
_BUFFER = 1 << 18
# Schemes that fzmfs.open reads itself, by ranges.
_REMOTE = ("s3", "http", "https")
_PARAMETERS = inspect.signature(open_archive).parameters.values()
_OPTIONS = [option.name for option in _PARAMETERS if option.kind == option.KEYWORD_ONLY]


class FileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The files of a container: ``fsspec.open("fzmfs://data.raw::file:///data/run.fzm")``.

    In a chain, the path of ``fzmfs://`` is that of the file in the container, and what follows is the container:
    a local file, a local copy (``::simplecache::memory://run.fzm``), or a URL that :func:`fzmfs.open` reads.
    Read-only; it can be shared by threads and pickled.

    Args:
        fo: the container: its path or URL, or an archive that is open.
        target_protocol: the scheme of ``fo``, if that has none.
        target_options: for the file system that ``fo`` is on.
        **options: those of :func:`fzmfs.open`, and of fsspec.

    Raises:
        fzmfs.Error: the container cannot be opened, or is broken there.
        FileNotFoundError: it has no such file.
    """

    protocol = "fzmfs"
    root_marker = ""
    # The source may change: each has its own container.
    cachable = False

    def __init__(
        self,
        fo: str | os.PathLike[str] | Archive,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        given = {name: options.pop(name) for name in _OPTIONS if name in options}
        super().__init__(**options)
        if not isinstance(fo, Archive):
            # The cache of a target may live only as long as the target.
            fo, self._target = _found(os.fspath(fo), target_protocol, target_options or {})
        self.archive, _ = opened(fo, given)

    def __reduce__(self) -> Any:
        return type(self), (self.archive,)

    def ukey(self, path: str) -> str:
        """Tells versions of a file apart."""
        return str(tokenize(self._strip_protocol(path), token(self.archive)))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return os.fspath(path).removeprefix("fzmfs://").strip("/")

    # Entries

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, type and size; decodes if only that tells the size."""
        entry = self._at(path)
        info = _described(entry)
        if info["type"] == "file" and (entry.kind == "link" or entry.size is None):
            info["size"] = self.archive.size(entry.path)
        return info

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The entries of a directory. Sizes are ``None`` where only decoding tells them."""
        path = self._strip_protocol(path)
        entries: list[Entry] = []
        try:
            for part in self.archive._parts(path, recursive=False):
                entries += part
                if len(entries) > _LISTED:
                    why = f"it has more than {_LISTED} entries; fzmfs ls lists them"
                    raise Error(errno.EFBIG, why, self.archive.source, "too_large", path)
        except Error as error:
            if not not_a_directory(error):
                raise _translated(error, path) from None
            entries = [self._at(path)]
        return [_described(entry) if detail else entry.path for entry in entries]

    def _at(self, path: str) -> Entry:
        path = self._strip_protocol(path)
        try:
            return self.archive.entry(path)
        except Error as error:
            raise _translated(error, path) from None

    def modified(self, path: str) -> datetime:
        """When the container was modified, in UTC: what tells a cache that its copy is old.

        Raises:
            FileNotFoundError: there is no such file.
        """
        self._at(path)
        return datetime.fromtimestamp(self.archive._reader().modified, timezone.utc)

    # Content

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes from ``start`` to ``end``; negative ones count from the end of the file."""
        file = self._file(path)
        first, last, _step = slice(start, end).indices(len(file))
        out = np.empty(max(last - first, 0), np.uint8)
        file.read_into(first, out)
        return out.tobytes()

    def _open(  # pyright: ignore[reportIncompatibleMethodOverride]  fsspec has no types
        self, path: str, mode: str = "rb", **_: Any
    ) -> File:
        if mode != "rb":
            raise OSError(errno.EROFS, "containers are read-only", path)
        return File(self, self._strip_protocol(path))

    # Writing

    def mkdir(self, *paths: Any, **_: Any) -> None:
        """Raises OSError: containers are read-only."""
        raise OSError(errno.EROFS, "containers are read-only", *paths[:1])

    makedirs = rmdir = cp_file = rm_file = _rm = mkdir

    def _file(self, path: str) -> _native.File:
        path = self._strip_protocol(path)
        try:
            return self.archive._reader().file(path)
        except Error as error:
            raise _translated(error, path) from None


class File(io.BufferedReader):
    """An open file of a container, with its path as ``name``, and its ``size``.

    ``blocksize`` is the bytes that it reads ahead, in which the file system ``blockcache`` of fsspec keeps it.
    """

    blocksize = _BUFFER

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return super().closed

    @closed.setter
    def closed(self, _: bool) -> None:
        # That file system sets it of a file that it has closed.
        pass

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)

    def __init__(self, fs: FileSystem, path: str) -> None:
        raw = _Raw(fs, path)
        super().__init__(raw, _BUFFER)
        self.fs = fs
        self.path = path
        self.size = raw.size

    @property
    def name(self) -> str:
        """The path in the container."""
        return self.path

    def __reduce_ex__(self, _: Any) -> Any:
        # Since Python 3.13, that of the class below comes before __reduce__, and refuses.
        return _reopened, (self.fs, self.path, self.tell())


class _Raw(io.RawIOBase):
    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self.size = len(fs._file(path))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if at < 0:
            raise OSError(errno.EINVAL, "negative offset")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        count = max(min(memoryview(buffer).nbytes, self.size - self._at), 0)
        if count:
            self._fs._file(self._path).read_into(self._at, np.frombuffer(buffer, np.uint8)[:count])
            self._at += count
        return count


def _reopened(fs: FileSystem, path: str, at: int) -> File:
    file = File(fs, path)
    file.seek(at)
    return file


def _found(url: str, protocol: str | None, options: dict[str, Any]) -> tuple[str, object]:
    """What :func:`fzmfs.open` takes for ``url``, and the file system that it depends on."""
    if protocol is None and "://" in url:
        protocol = url.partition("://")[0]
    if protocol is None:
        return url, None
    if protocol in _REMOTE:
        return url if "://" in url else f"{protocol}://{url}", None
    target = fsspec.filesystem(protocol, **options)
    if isinstance(target, LocalFileSystem):
        return target._strip_protocol(url), target
    if getattr(target, "local_file", False):
        with target.open(url) as copy:
            return copy.name, target
    way = f"fzmfs://PATH::simplecache::{protocol}://..."
    raise ValueError(f"fzmfs does not read {protocol}://; let fsspec copy the file: {way}")


def _described(entry: Entry) -> dict[str, Any]:
    is_directory = entry.kind == "directory"
    kind = "directory" if is_directory else "file"
    info = {"name": entry.path, "size": 0 if is_directory else entry.size, "type": kind}
    return {**info, "islink": True} if entry.kind == "link" else info


def _translated(error: Error, path: str) -> OSError:
    """What Python calls files that are missing, and directories that are not files."""
    if is_missing(error):
        return FileNotFoundError(errno.ENOENT, str(error.strerror), path)
    if error.errno == errno.EISDIR:
        return IsADirectoryError(errno.EISDIR, "is a directory", path)
    return error
