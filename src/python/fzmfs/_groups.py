"""The arrays of a container as xarray has them: groups of variables with dimensions, chunks and attributes."""

from __future__ import annotations

import asyncio
import itertools
import json
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from xarray import Variable
from xarray.backends import AbstractDataStore, BackendArray, StoreBackendEntrypoint
from xarray.core import indexing

from ._doors import is_missing
from ._errors import Error
from ._show import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from xarray import Dataset

    from ._archive import Archive
    from ._array import Array

# Metalayers that say how an array is stored, and those with names of dimensions, which the variable has.
_STRUCTURE = {"b2nd", "caterva", "dimension_names", "_ARRAY_DIMENSIONS", "dims"}
# The most bytes of an attribute.
_ATTRIBUTE = 1 << 20


class Groups:
    """The arrays of an archive by group. A ``with`` statement closes the archive after an error, if it is its own.

    Attributes:
        groups: the paths of the groups, each after the one that it is in; for each variable the name of its array.
    """

    def __init__(self, archive: Archive, owned: bool) -> None:
        self.archive = archive
        self._owned = owned
        self._info: dict[str, Any] = {}
        self._documents: dict[str, Any] = {}
        self.groups: dict[str, dict[str, str]] = {"": {}}

    def __enter__(self) -> Groups:
        try:
            self._read()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()

    def close(self) -> None:
        """Closes the archive, if it is its own."""
        if self._owned:
            self.archive.close()

    def _read(self) -> None:
        self._info = self.archive.info
        # A member of a Blosc2 archive is its array, as in data.zarr.
        inner = "/data" if self._info.get("format") == "blosc2" else ""
        names = {name.removesuffix(inner): name for name in self.archive}
        if not names:
            raise ValueError(f"{self.archive.source} has no arrays; for bytes give options=dict(dtype=..., shape=...)")
        for path, name in names.items():
            *above, variable = path.split("/")
            group = ""
            for part in above:
                # A tree of groups has no names of dots alone; and an array keeps its name, as in data.zarr.
                group += ("/" if group else "") + (part if part.strip(".") else part.replace(".", "%2E"))
                while group in names:
                    group += "~2"
                self.groups.setdefault(group, {})
            self.groups[group][variable] = name
        try:
            root = json.loads(self.archive.read("data.zarr/zarr.json"))
        except Error as error:
            if is_missing(error):
                return
            raise
        members = root["consolidated_metadata"]["metadata"]
        self._documents = {unescaped(path): document for path, document in members.items()}

    def below(self, root: str) -> Iterator[str]:
        """The paths of ``root`` and of all groups below it, each after the one that it is in."""
        yield root
        yield from (path for path in self.groups if path != root and (not root or path.startswith(root + "/")))

    def dataset(self, group: str, decoders: dict[str, Any], above: dict[Any, int] | None = None) -> Dataset:
        """The arrays of ``group``; ``above`` are the sizes of the dimensions of the groups above."""
        if group not in self.groups:
            there = ", ".join(filter(None, self.groups)) or "none"
            raise ValueError(f"{self.archive.source} has no group {group!r}; there are: {there}")
        return StoreBackendEntrypoint().open_dataset(_Group(self, group, dict(above or {})), **decoders)

    def dimensions(self, path: str, shape: tuple[int, ...], sizes: dict[Any, int]) -> list[str]:
        """The names of the dimensions of the array at ``path``, where those in ``sizes`` have their size already."""
        document = self._documents.get(path, {})
        names: list[str] = document.get("dimension_names") or []
        fits = document.get("shape") == list(shape) and len(names) == len(shape)
        if fits and all(sizes.get(name, size) == size for name, size in zip(names, shape)):
            return names
        # As data.zarr names dimensions that have no names: by their sizes.
        before = [shape[:at].count(size) for at, size in enumerate(shape)]
        return [f"size_{size}" + (f"_{count + 1}" if count else "") for size, count in zip(shape, before)]

    def attributes(self, array: Array) -> dict[str, Any]:
        """The metalayers of ``array``, if it is of Blosc2.

        Raises:
            fzmfs.Error: one of them is broken: it may say what the elements mean.
        """
        attributes: dict[str, Any] = {}
        if self._info.get("format") != "blosc2":
            return attributes
        folder = array._path.rpartition("/")[0]
        for kind in ("metalayers", "vlmetalayers"):
            for path, size in self._layers(f"{folder}/{kind}".lstrip("/")):
                name = unescaped(path.rpartition("/")[2].removesuffix(".json"))
                if name not in _STRUCTURE and (size or 0) <= _ATTRIBUTE:
                    attributes[name] = json.loads(self.archive.read(path))
        return attributes

    def _layers(self, folder: str) -> Iterable[tuple[str, int | None]]:
        try:
            entries = self.archive.files(folder, recursive=False)
        except Error as error:
            if is_missing(error):
                return []
            raise
        return [(entry.path, entry.size) for entry in entries if entry.path.endswith(".json")]

    def root_attributes(self) -> dict[str, Any]:
        """What the container is, and the attributes that it has as a whole."""
        own = self._info.get("attributes")
        return {
            **(own if isinstance(own, dict) else {}),
            "fzmfs_format": f"{self._info.get('format')} {self._info.get('format_version')}",
            "fzmfs_identity": self.archive.identity,
        }


class _Group(AbstractDataStore):
    """The arrays of one group, as xarray takes them."""

    def __init__(self, groups: Groups, group: str, sizes: dict[Any, int]) -> None:
        self._groups = groups
        self._attributes = {} if group else groups.root_attributes()
        self._variables: dict[str, Variable] = {}
        left_out = []
        for variable, name in groups.groups[group].items():
            try:
                array = groups.archive[name]
            except Error as error:
                left_out.append(f"{variable}: {error}")
                continue
            dimensions = groups.dimensions(f"{group}/{variable}".lstrip("/"), array.shape, sizes)
            sizes.update(zip(dimensions, array.shape))
            chunks = dict(zip(dimensions, array.chunks))
            encoding = {"preferred_chunks": chunks} if chunks else {}
            data = indexing.LazilyIndexedArray(LazyArray(array))
            self._variables[variable] = Variable(dimensions, data, groups.attributes(array), encoding)
        if left_out:
            warnings.warn(f"arrays left out: {'; '.join(left_out)}", stacklevel=2)
            self._attributes["fzmfs_left_out"] = left_out

    def get_variables(self) -> dict[str, Variable]:
        return self._variables

    def get_attrs(self) -> dict[str, Any]:
        return self._attributes

    def get_encoding(self) -> dict[str, Any]:
        return {"source": self._groups.archive.source}

    def close(self) -> None:
        self._groups.close()


class LazyArray(BackendArray):
    """An array of a container, read where xarray indexes it."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> Any:
        """The elements at ``key``: for each dimension an integer, a slice or an array of indices."""
        parts = [_parts(index, size, chunk) for index, size, chunk in zip(key, self.shape, self._array.chunks)]
        if all(len(part) == 1 and part[0].there is None for part in parts):
            return np.asarray(self._array[key])
        # Far indices are read apart: between them is what nobody wants, and perhaps what is broken.
        axes = [axis for axis, index in enumerate(key) if not isinstance(index, (int, np.integer))]
        counts = [_count(key[axis], self.shape[axis]) for axis in axes]
        out = np.empty(counts, self.dtype)
        for boxes in itertools.product(*parts):
            box = np.asarray(self._array[tuple(part.read for part in boxes)])
            for place, axis in enumerate(axes):
                picked = boxes[axis].picked
                box = box if picked is None else box.take(picked, place)
            there = [np.arange(n) if boxes[axis].there is None else boxes[axis].there for axis, n in zip(axes, counts)]
            out[np.ix_(*there)] = box
        return out


class _Part(NamedTuple):
    """Indices along one dimension that are read at once."""

    read: Any
    """The index to read, as :class:`fzmfs.Array` takes it."""
    picked: NDArray[np.intp] | None
    """Which of what is read; ``None``: all."""
    there: NDArray[np.intp] | None
    """Their places in the result; ``None``: all."""


def _count(index: Any, size: int) -> int:
    return len(range(*index.indices(size))) if isinstance(index, slice) else len(index)


def _parts(index: Any, size: int, chunk: int) -> list[_Part]:
    """The parts of an index of a dimension of ``size``: indices that are less than a chunk apart are read together."""
    if not isinstance(index, np.ndarray):
        return [_Part(index, None, None)]
    if index.size and not (-size <= index.min() and index.max() < size):
        raise IndexError(f"an index is out of bounds for a dimension of {size}")
    wanted = np.where(index < 0, index + size, index)
    order = np.argsort(wanted, kind="stable")
    ends = np.flatnonzero(np.diff(wanted[order]) > max(chunk, 1)) + 1
    parts = []
    for there in np.split(order, ends):
        if there.size:
            first, last = int(wanted[there[0]]), int(wanted[there[-1]])
            parts.append(_Part(slice(first, last + 1), wanted[there] - first, there))
    return parts or [_Part(slice(0, 0), None, None)]
