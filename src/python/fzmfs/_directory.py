"""Directories of containers: mappings of archives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _native, _show
from ._archive import Archive

# Of the options, those for listing.
_LISTING = ("timeout", "unpinned", "remote_cache")


class Directory(Mapping[str, "Archive | Directory"]):
    """A directory of containers: a mapping of their names to archives, and of the names of directories in it to
    directories. :func:`fzmfs.open` makes it, of a path or of a URL such as ``s3://BUCKET/runs/``.

    It is listed when it is opened. A container is opened when it is first taken, and stays open as long as the directory;
    one that is broken raises :class:`fzmfs.Error` then, and the others are there. Containers are the files with the usual
    extensions. A name with slashes leads through directories.

    A context manager: ``close`` closes what it has opened. It can be pickled; the copy lists the directory again.
    """

    def __init__(self, source: str, options: dict[str, Any], listed: list[tuple[str, bool]]) -> None:
        self._source = source
        self._options = options
        self._kinds = dict(listed)
        self._opened: dict[str, Archive | Directory] = {}
        self._closed = False

    @property
    def source(self) -> str:
        """Where it is: an absolute path, or a URL."""
        return self._source

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def close(self) -> None:
        """Closes it, and the archives that it has opened. Further use raises ValueError."""
        self._closed = True
        while self._opened:
            self._opened.popitem()[1].close()

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return opened, (self._source, self._options)

    def __getitem__(self, name: str) -> Archive | Directory:
        if self._closed:
            raise ValueError("the directory is closed")
        first, _, rest = name.strip("/").partition("/") if isinstance(name, str) else ("", "", "")
        if first not in self._kinds:
            raise KeyError(_show.missing(name, list(self._kinds), "container or directory"))
        if first not in self._opened:
            self._opened[first] = self._open(first)
        found = self._opened[first]
        if not rest:
            return found
        if isinstance(found, Archive):
            raise KeyError(f"{first} is a container, and its arrays are in it: [{first!r}][{rest!r}]")
        return found[rest]

    def _open(self, name: str) -> Archive | Directory:
        place = self._source.rstrip("/") + "/" + name
        if self._kinds[name]:
            return Archive(place, self._options)
        directory = opened(place + "/", self._options)
        if directory is None:  # it was one when it was listed
            raise KeyError(name)
        return directory

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._kinds

    def __iter__(self) -> Any:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._kinds)

    def __repr__(self) -> str:
        count = sum(self._kinds.values())
        return f"<fzmfs.Directory {self._source!r}: {count} containers, {len(self._kinds) - count} directories>"


def opened(source: str, options: dict[str, Any]) -> Directory | None:
    """The directory at ``source``; ``None`` if that is a file, or a container that is a directory.

    Raises:
        fzmfs.Error: it cannot be listed.
    """
    listing = {name: options[name] for name in _LISTING if name in options}
    listed = _native.list_directory(source, **listing)
    if listed is None:
        return None
    return Directory(source if "://" in source else os.path.abspath(source), options, listed)
