"""What the doors to other packages share: the archive behind them, and what its errors mean."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from ._archive import Archive
from ._directory import Directory
from ._errors import Error

if TYPE_CHECKING:
    from ._zarr import ZarrStore


def opened(source: str | os.PathLike[str] | Archive, options: dict[str, Any]) -> tuple[Archive, bool]:
    """The archive at ``source`` and whether it was opened here, or the one that ``source`` is already.

    Raises:
        TypeError: options for an archive that is open.
        fzmfs.Error: it cannot be opened.
    """
    if isinstance(source, Archive):
        if options:
            raise TypeError(f"the archive is open already: {', '.join(options)} can no longer be set")
        return source, False
    from . import open

    archive: Any = open(source, **options)
    if isinstance(archive, Directory):
        archive.close()
        why = "a directory of containers: open those in it"
        raise Error(errno.EISDIR, why, archive.source, "unsupported", "file")
    return archive, True


def is_missing(error: Error) -> bool:
    """Whether the tree has no file or directory there; the container itself is in order."""
    return error.kind == "not_found"


def not_a_directory(error: Error) -> bool:
    """Whether a file is where a directory was expected."""
    return error.errno == errno.ENOTDIR


def token(archive: Archive) -> tuple[object, ...]:
    """What Dask tells archives apart by: equal for archives of the same version of a source, opened alike."""
    return ("fzmfs", archive.source, archive.identity, sorted(archive._options.items(), key=lambda item: item[0]))


def zarr_store(source: str | os.PathLike[str] | Archive, **options: Any) -> ZarrStore:
    """The arrays of ``source`` as a read-only store of zarr-python: the group ``data.zarr`` that a mount shows.

    ``zarr.open_group(fzmfs.zarr_store("run.fzm"))["data"][10:20]``

    Args:
        source: what :func:`fzmfs.open` takes, or an archive that is open and stays so when the store is closed.
        **options: those of :func:`fzmfs.open`.

    Raises:
        ImportError: zarr-python 3.1.3 or later is not installed.
        fzmfs.Error: ``source`` cannot be opened, is broken, or has no element types.
    """
    try:
        from ._zarr import ZarrStore
    except ImportError as error:
        why = "fzmfs.zarr_store needs zarr-python 3.1.3 or later: pip install 'fzmfs[zarr]'"
        raise ImportError(why, name=error.name, path=error.path) from error
    archive, owned = opened(source, options)
    try:
        return ZarrStore(archive, owned=owned)
    except BaseException:
        if owned:
            archive.close()
        raise
