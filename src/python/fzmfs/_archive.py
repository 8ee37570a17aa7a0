"""Open containers: mappings of arrays, and trees of files."""

from __future__ import annotations

import errno
import json
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native, _show
from ._array import Array
from ._dtype import native_type
from ._errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

# Entries that are listed at a time.
_PART = 1000

_forks = 0
"""How often this process was forked from one that had loaded the package: threads do not survive that."""


def _forked() -> None:
    global _forks
    _forks += 1


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Entry(NamedTuple):
    """A file, directory or link of a container."""

    path: str
    """From the root, as ``chunks/000007.raw``."""
    kind: str
    """``file``, ``directory`` or ``link``."""
    size: int | None
    """In bytes; ``None`` for a directory, and if only decoding would tell."""


class Verified(NamedTuple):
    """What :meth:`Archive.verify` has checked."""

    checks: int
    """Streams decoded, and separate checksums."""
    bytes: int
    """Bytes that the checks covered."""
    checksums: int | None
    """Checksums among them; None if that is not known. Without any, overwritten bytes go unnoticed if they still decode."""


def _open(source: str, options: dict[str, Any]) -> _native.Archive:
    if "dtype" in options:
        options = {**options, "dtype": native_type(options["dtype"])}
    return _native.Archive(source, **options)


class Archive(Mapping[str, Array]):
    """An open container: a mapping of names to lazy arrays. :func:`fzmfs.open` makes it.

    Names are those of the container: ``data`` for the one array of a container (``source1``, ... for further ones),
    ``buffers/NAME`` in FZM, the names of the tensors in zTensor (``NAME/ROLE`` for components). A container without
    element types has no arrays unless ``dtype=`` is given; its bytes are :meth:`read` like those of every file.

    A context manager: ``close`` frees descriptors, cache and threads; arrays of it can then not be read any more.
    Threads may share it. It can be pickled; the copy opens the source again, and raises :class:`fzmfs.Error` if that
    has changed. After a fork it opens the source again by itself, likewise.
    """

    def __init__(self, source: str, options: dict[str, Any], identity: str | None = None) -> None:
        self._options = options
        self._opened: _native.Archive | None = _open(source, options)
        self._generation = _forks
        self._identity = self._opened.identity
        self._source = self._opened.path
        # What opens it again. A relative path would be another file in another directory; what may be secret in a URL is
        # not in `_source`.
        self._again = self._source if os.path.isabs(self._source) else source
        self._paths: dict[str, str] | None = None
        # The arrays that keep it open.
        self._arrays: set[weakref.ref[Array]] = set()
        # The same, opened for a GPU of that number.
        self._on_gpus: dict[int, Archive] = {}
        if identity is not None:
            self._expect(identity)

    # Opening, closing, copying

    def close(self) -> None:
        """Closes it. Further use raises ValueError. Closing it again does nothing."""
        self._opened = None
        for known in self._arrays.copy():
            if (array := known()) is not None:
                array._native = None
        for archive in self._on_gpus.values():
            archive.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._opened is None

    def __enter__(self) -> Archive:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        self._check_open()
        return type(self), (self._again, self._options, self._identity)

    def __dask_tokenize__(self) -> object:
        from ._doors import token

        return token(self)

    def _keep(self, array: Array) -> None:
        """Closes ``array`` with this archive. Nothing here is interrupted by other threads."""
        self._arrays.add(weakref.ref(array, self._arrays.discard))
        if self._opened is None:
            array._native = None

    def _check_open(self) -> None:
        if self._opened is None:
            raise ValueError("the archive is closed")

    def _current(self) -> int:
        """The generation of what is open now; opens the source again in a forked process."""
        if self._generation != _forks and self._opened is not None:
            # What the parent process opened is neither used nor dropped here: its threads are not there.
            self._opened = _open(self._again, self._options)
            self._generation = _forks
            self._expect(self._identity)
        return self._generation

    def _expect(self, identity: str) -> None:
        if self._opened is None or self._opened.identity != identity:
            self.close()
            raise Error(
                errno.EIO,
                f"the file changed since it was first opened: it was {identity}; open it again",
                self._source,
                "changed",
                "file",
            )

    def _on_gpu(self, device: int) -> Archive:
        """The same container, opened for the GPU ``device``."""
        self._check_open()
        name = f"cuda:{device}"
        if self._options.get("device") in (name, name.removesuffix(":0")):
            return self
        if device not in self._on_gpus:
            self._on_gpus[device] = Archive(self._again, {**self._options, "device": name}, self._identity)
        return self._on_gpus[device]

    def _reader(self) -> _native.Archive:
        self._current()
        # Another thread may close it meanwhile.
        opened = self._opened
        if opened is None:
            raise ValueError("the archive is closed")
        return opened

    # The mapping

    def _names(self) -> dict[str, str]:
        if self._paths is None:
            names: dict[str, str] = {}
            for shown, path in self._reader().arrays():
                name = _show.unescaped(shown)
                names[shown if name in names else name] = path
            self._paths = names
        return self._paths

    def _array(self, path: str) -> _native.Array:
        array = self._reader().array(path)
        if array is None:
            raise Error(errno.EIO, "it is not an array", self._source, "corrupt", path)
        return array

    def __getitem__(self, name: str) -> Array:
        path = self._names().get(name) if isinstance(name, str) else None
        if path is None:
            raise KeyError(self._why_not(name) or _show.missing(name, list(self._names())))
        return Array(self, name, path, self._array(path))

    def _why_not(self, name: object) -> str | None:
        """Why what the container calls ``name`` is not an array here."""
        try:
            left_out = json.loads(self.read("data.zarr/zarr.json"))["attributes"]["left_out"]
        except (Error, KeyError):
            return None
        why = left_out.get(name) if isinstance(name, str) else None
        return None if why is None else f"{name!r} is not an array here: {why}; read() has its bytes"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._names())

    # Two archives are equal if they are the same.
    def __hash__(self) -> int:
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    # Files

    def files(self, path: str = "", *, recursive: bool = True) -> list[Entry]:
        """The entries below the directory ``path``, each directory before its content: those of ``fzmfs ls -R``."""
        return [entry for part in self._parts(path, recursive=recursive) for entry in part]

    def _parts(self, path: str, *, recursive: bool) -> Iterator[list[Entry]]:
        """The same, some at a time: there may be more of them than memory."""
        walk = self._reader().walk(path, recursive)
        while rows := walk.more(_PART):
            yield [Entry(*row) for row in rows]

    def entry(self, path: str) -> Entry:
        """The entry at ``path``.

        Raises:
            fzmfs.Error: of the kind ``not_found``; the message has the names that there are.
        """
        return Entry(*self._reader().entry(path))

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """``size`` bytes of the file ``path`` from byte ``offset`` on, or up to its end: what the mounted file gives.

        Fewer bytes are returned only at the end of the file.
        """
        if offset < 0 or (size is not None and size < 0):
            raise ValueError("offset and size are not negative")
        file = self._reader().file(path)
        left = max(len(file) - offset, 0)
        out = np.empty(left if size is None else min(size, left), np.uint8)
        file.read_into(min(offset, len(file)), out)
        return out.tobytes()

    def size(self, path: str) -> int:
        """The length of the file ``path`` in bytes; decodes if the container does not say."""
        return len(self._reader().file(path))

    @property
    def info(self) -> dict[str, Any]:
        """What it is: format, version, sizes, codec, checksums; the content of ``info.json``."""
        info: dict[str, Any] = json.loads(self._reader().info())
        return info

    @property
    def source(self) -> str:
        """Where it is: an absolute path."""
        return self._source

    @property
    def identity(self) -> str:
        """What tells its versions apart: its size and its time of modification."""
        return self._identity

    def check(self) -> None:
        """Confirms all reads so far: waits for checksums that are verified in the background.

        Raises:
            fzmfs.Error: one of them failed, or the source has changed.
        """
        self._reader().check()

    def verify(self, progress: Callable[[int, int | None], object] | None = None) -> Verified:
        """Checks every checksum and decodes everything, as ``fzmfs verify``.

        Args:
            progress: called now and then with the bytes checked and their total, if that is known. Its exceptions end
                the verification.

        Raises:
            fzmfs.Error: the first error, in the order of the container.
        """
        return Verified(*self._reader().verify(progress))

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<fzmfs.Archive{state} {self._source!r}>"

    def _repr_html_(self) -> str:
        return repr(self) if self.closed else _show.archive(self)
