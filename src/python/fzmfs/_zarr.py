"""``data.zarr`` as a store of zarr-python: the tree that a mount shows, read in the process."""

from __future__ import annotations

import asyncio
import errno
import json
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from ._doors import is_missing, not_a_directory, token
from ._errors import Error
from ._zarr_types import are_known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from numpy.typing import NDArray
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

    from . import _native
    from ._archive import Archive, Entry

_ROOT = "data.zarr/"
# Of memory to use again: smaller values have their own; at most so many, which is what zarr-python reads at a time.
_SMALL = 1 << 16
_SPARE = 12


class ZarrStore(Store):
    """The arrays of a container as a Zarr group, version 3: :func:`fzmfs.zarr_store` makes it.

    Nothing can be written to it. ``read_only`` is only what zarr-python asks for: by default it opens groups for reading
    and writing, and refuses to do so with a store that calls itself read-only.

    Chunks are decoded when they are read, straight into the memory that zarr-python gets, several at a time. A broken
    chunk raises :class:`fzmfs.Error`; it is never taken for a missing one. Stores can be shared by threads and pickled,
    like archives.
    """

    _root = _ROOT

    def __init__(self, archive: Archive, *, owned: bool = False, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        archive._check_open()
        try:
            archive.entry(_ROOT)
        except Error as error:
            if not is_missing(error):
                raise
            why = "it has no element types, and so no data.zarr; give dtype= (and shape=)"
            raise Error(errno.ENOENT, why, archive.source, "not_found", "data.zarr") from None
        self._archive = archive
        self._owned = owned
        self._memory = _Memory()
        self._without_consolidated: bool | None = None

    @property
    def supports_writes(self) -> bool:
        """No."""
        return False

    @property
    def supports_deletes(self) -> bool:
        """No."""
        return False

    @property
    def supports_listing(self) -> bool:
        """Yes."""
        return True

    @property
    def archive(self) -> Archive:
        """What it shows."""
        return self._archive

    def close(self) -> None:
        """Closes the store, and the archive unless that was given to :func:`fzmfs.zarr_store`."""
        super().close()
        if self._owned:
            self._archive.close()

    def with_read_only(self, read_only: bool = False) -> ZarrStore:
        """The same store.

        Raises:
            NotImplementedError: ``read_only`` is false, and a store that can be written to is wanted.
        """
        if not read_only:
            raise NotImplementedError(f"with_read_only is not implemented for the {type(self)} store type.")
        return type(self)(self._archive, read_only=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and token(self._archive) == token(other._archive)

    __hash__ = None  # type: ignore[assignment]

    def __dask_tokenize__(self) -> object:
        return "zarr", *token(self._archive)

    def __str__(self) -> str:
        return f"fzmfs://data.zarr::file://{self._archive.source}"

    def __repr__(self) -> str:
        return f"<fzmfs.ZarrStore {self._archive.source!r}>"

    # Reading

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """As :meth:`get`, without an event loop."""
        buffer = (prototype or default_buffer_prototype()).buffer
        if key.rpartition("/")[2] == "zarr.json" and self.lists_members:
            document = self._without(key)
            return None if document is None else buffer.from_bytes(document[slice(*_bounds(byte_range, len(document)))])
        file = self._file(key)
        if file is None:
            return None
        start, end = _bounds(byte_range, len(file))
        out: Any = self._memory.array(end - start)
        file.read_into(start, out)
        return buffer.from_array_like(out)

    @property
    def lists_members(self) -> bool:
        """Whether groups show their arrays by listing them, and not in consolidated metadata.

        That has no array of a type that only some versions of zarr-python know. If this one knows the types of all, or has
        got them from ml_dtypes, groups have them all.
        """
        if self._without_consolidated is None:
            root = json.loads(self._archive.read(_ROOT + "zarr.json"))
            apart = root["attributes"].get("not_consolidated", {}).values()
            self._without_consolidated = bool(apart) and are_known(apart)
        return self._without_consolidated

    def _without(self, key: str) -> bytes | None:
        """The document ``key`` without consolidated metadata."""
        file = self._file(key)
        if file is None:
            return None
        document = json.loads(self._archive.read(self._root + key))
        document.pop("consolidated_metadata", None)
        return json.dumps(document).encode()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of ``key``, or of a range of it; ``None`` if there is no such key.

        Raises:
            fzmfs.Error: they are broken, or the source has changed.
        """
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several of them, at the same time."""
        return await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether there is such a key. Decodes nothing."""
        return await asyncio.to_thread(self._has, key)

    async def getsize(self, key: str) -> int:
        """The bytes of ``key``. Decodes nothing.

        Raises:
            FileNotFoundError: there is no such key.
        """
        size = await asyncio.to_thread(self._size, key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def _size(self, key: str) -> int | None:
        if key.rpartition("/")[2] == "zarr.json" and self.lists_members:
            document = self._without(key)
            return None if document is None else len(document)
        file = self._file(key)
        return None if file is None else len(file)

    def _file(self, key: str) -> _native.File | None:
        if not _is_key(key):
            return None
        try:
            return self._archive._reader().file(self._root + key)
        except Error as error:
            # zarr-python takes a missing chunk for zeros: nothing that the tree lists is missing.
            if error.errno == errno.EISDIR or (is_missing(error) and not self._has(key)):
                return None
            raise

    def _has(self, key: str) -> bool:
        try:
            return _is_key(key) and self._archive.entry(self._root + key).kind != "directory"
        except Error as error:
            if is_missing(error):
                return False
            raise

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """All keys. There are as many as chunks."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The keys that begin with ``prefix``."""
        async for entry in self._entries(prefix.rpartition("/")[0], recursive=True):
            key = entry.path.removeprefix(self._root)
            if entry.kind != "directory" and key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names in the directory ``prefix``."""
        async for entry in self._entries(prefix.rstrip("/"), recursive=False):
            yield entry.path.rpartition("/")[2]

    async def _entries(self, path: str, *, recursive: bool) -> AsyncIterator[Entry]:
        if path and not _is_key(path):
            return
        parts = self._archive._parts(self._root + path, recursive=recursive)
        try:
            while part := await asyncio.to_thread(next, parts, None):
                for entry in part:
                    yield entry
        except Error as error:
            if not is_missing(error) and not not_a_directory(error):
                raise

    # Writing

    def set_sync(self, key: str, value: Buffer) -> None:
        """Raises ValueError: containers are read-only."""
        # The words of zarr-python.
        raise ValueError(f"store was opened in read-only mode and does not support writing: {key}")

    def delete_sync(self, key: str) -> None:
        """Raises ValueError: containers are read-only."""
        raise ValueError(f"store was opened in read-only mode and does not support writing: {key}")

    async def set(self, key: str, value: Buffer) -> None:
        """Raises ValueError: containers are read-only."""
        self.set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Raises ValueError: containers are read-only."""
        self.set_sync(key, value)

    async def delete(self, key: str) -> None:
        """Raises ValueError: containers are read-only."""
        self.delete_sync(key)


class _Memory:
    """Memory of values that nobody has any more, for the next ones: new pages cost nearly as much as decoding."""

    def __init__(self) -> None:
        self._spare: deque[bytearray] = deque(maxlen=_SPARE)

    def __reduce__(self) -> tuple[type[_Memory], tuple[()]]:
        return type(self), ()

    def array(self, size: int) -> NDArray[np.uint8]:
        """``size`` bytes; the memory is free again when this array and all views of it are gone."""
        if size < _SMALL:
            return np.empty(size, np.uint8)
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = bytearray()
        if not size <= len(memory) <= 2 * size:
            memory = bytearray(size)
        # Views of it keep this array, since its own base is not an array.
        out = np.frombuffer(memory, np.uint8, size)
        weakref.finalize(out, self._spare.append, memory).atexit = False
        return out


def _is_key(key: str) -> bool:
    """Whether it is written as keys are: the tree also has other ways to write a path."""
    return not any(part in ("", ".", "..") for part in key.split("/"))


def _bounds(part: ByteRequest | None, size: int) -> tuple[int, int]:
    """The first and past the last byte of the range of a value of ``size`` bytes."""
    if part is None:
        return 0, size
    if isinstance(part, RangeByteRequest):
        start, end = part.start, part.end
    elif isinstance(part, OffsetByteRequest):
        start, end = part.offset, size
    elif isinstance(part, SuffixByteRequest):
        start, end = size - part.suffix, size
    else:
        raise TypeError(f"Unexpected byte_range, got {part!r}.")
    start = min(max(start, 0), size)
    return start, min(max(end, start), size)
