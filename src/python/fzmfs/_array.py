"""Lazy arrays: what is indexed is read, and no more."""

from __future__ import annotations

import errno
import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _show
from ._cuda import CudaView
from ._dlpack import capsule
from ._dtype import added_name, numpy_dtype
from ._errors import Error
from ._index import chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike, NDArray

    from ._archive import Archive
    from ._native import Array as Native


class Array:
    """An array in a container, read where it is indexed.

    ``array[10:20, ::-2, ..., 0]`` is a :class:`numpy.ndarray`: basic indexing as NumPy has it (integers, slices with
    any step, ``...``, ``numpy.newaxis``). Only the pieces of the container that the elements lie in are decoded, on all
    cores and without the interpreter lock, straight into the result. ``numpy.asarray(array)`` reads all of it.

    Threads may share it. It can be pickled: the copy opens the source again, and raises :class:`fzmfs.Error` if that
    has changed.
    """

    def __init__(self, archive: Archive, name: str, path: str, native: Native) -> None:
        self._archive = archive
        self._name = name
        self._path = path
        # None once the archive is closed.
        self._native: Native | None = native
        self._generation = archive._generation
        self._shape: tuple[int, ...] = tuple(native.shape)
        self._added = added_name(native.descr, native.type_name or archive._options.get("dtype"))
        try:
            self._dtype = numpy_dtype(native.descr, self._added)
        except (ValueError, TypeError) as error:
            why = f"NumPy has no such type: {error}"
            raise Error(errno.EIO, why, archive.source, "unsupported", "dtype") from None
        self._stored: int = native.stored
        self._chunks: tuple[int, ...] | None = None
        self._attrs: dict[str, Any] | None = None
        archive._keep(self)

    @property
    def name(self) -> str:
        """Its name in the mapping."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension, slowest first."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, with its byte order."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, decoded."""
        return self.size * self._dtype.itemsize

    @property
    def stored(self) -> int:
        """Bytes that it takes in the container; 0 if it shares all of them with other arrays."""
        return self._stored

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._dtype.itemsize

    @property
    def chunks(self) -> tuple[int, ...]:
        """A good shape of the parts to read it in: 1 to 4 MiB, in few pieces of the container. Dask takes it."""
        if self._chunks is None:
            self._chunks = tuple(self._reader().chunks)
        return self._chunks

    @property
    def attrs(self) -> dict[str, Any]:
        """What the container says of it beside its elements, as ``data.zarr`` has it: metalayers of Blosc2, attributes of
        zTensor, the pipeline and the error bound of FZM. NaN and infinities are text. Read when first asked for.

        Raises:
            fzmfs.Error: the container is broken there.
        """
        attrs = self._attrs
        if attrs is None:
            attrs = self._attrs = dict(json.loads(self._reader().attributes()))
        return attrs

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of unsized object")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("iteration over a 0-d array")
        return (self[at] for at in range(self._shape[0]))

    def __getitem__(self, index: Any) -> Any:
        """The elements at ``index``: an array, or a scalar if every dimension has an integer.

        Raises:
            IndexError: out of bounds, or a boolean or integer array.
            fzmfs.Error: the data there is broken, or the source has changed.
        """
        want = chosen(index, self._shape)
        if not want.shape and not _has_ellipsis(index):
            return self._read(want.steps, want.counts).reshape(())[()]
        out = self._read(want.steps, want.counts).reshape(want.shape)
        return out if want.flips is None else out[want.flips]

    def read(self, index: Any = ..., *, out: NDArray[Any] | None = None) -> Any:
        """As ``self[index]``, but into ``out`` if that is given: an array of the shape of the result.

        The elements are decoded straight into ``out`` if it has the type of this array and is contiguous; otherwise
        they are converted, as ``numpy.copyto(out, self[index], casting="same_kind")`` does.

        Raises:
            ValueError: ``out`` has another shape.
            TypeError: ``out`` has a type that the elements cannot be converted to.
        """
        if out is None:
            return self[index]
        if not isinstance(out, np.ndarray) or isinstance(out, (np.matrix, np.ma.MaskedArray)):
            raise TypeError("out must be a numpy.ndarray, without a mask and no matrix; read_into fills other memory")
        want = chosen(index, self._shape)
        if out.shape != want.shape:
            raise ValueError(f"out has the shape {out.shape}, and the elements {want.shape}")
        direct = out if want.flips is None else out[want.flips]
        if out.dtype == self._dtype and direct.flags.c_contiguous and direct.flags.writeable:
            self._fill(want.steps, _bytes_of(direct))
        else:
            elements = self._read(want.steps, want.counts).reshape(want.shape)
            np.copyto(out, elements if want.flips is None else elements[want.flips], casting="same_kind")
        return out

    def read_into(self, buffer: Any, index: Any = ...) -> int:
        """Fills ``buffer`` (a bytearray, memoryview, mmap: whatever has a writable contiguous buffer) with the bytes of
        the elements at ``index``, in C order; returns their number. The buffer may be longer.

        Raises:
            ValueError: the buffer is too short, or ``index`` reverses a dimension.
        """
        want = chosen(index, self._shape)
        if want.flips is not None:
            raise ValueError("read_into reads forwards: use read(index, out=...) for negative steps")
        count = math.prod(want.counts) * self._dtype.itemsize
        view = memoryview(buffer)
        # Between colons are names of fields.
        if "O" in re.sub(":[^:]*:", "", view.format):
            raise TypeError("the buffer holds Python objects, and no bytes")
        target = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
        if target.size < count:
            raise ValueError(f"the buffer has {target.size} bytes, and the elements {count}")
        if not target.flags.writeable:
            raise ValueError("the buffer is read-only")
        self._fill(want.steps, target[:count])
        return count

    def cuda(self, device: int = 0, stream: object = None) -> CudaView:
        """The array on the NVIDIA GPU ``device``: ``array.cuda()[10:20]`` decodes there and stays there.

        Only stored bytes are uploaded. ``torch.from_dlpack(array.cuda())`` has all of it, without a copy; so have CuPy
        and JAX, also by ``__cuda_array_interface__``. Elements are complete when they are returned: any stream may use
        them. Their memory counts against ``gpu_memory=``.

        Args:
            device: the number of the GPU.
            stream: of PyTorch, CuPy or cuda.core, or its handle, which must then live as long as the elements: what uses
                them is done on it, and freeing them waits for nothing else. Without one it waits for the whole GPU.

        Raises:
            fzmfs.Error: there is no such GPU.
        """
        archive = self._archive._on_gpu(device)
        array = self if archive is self._archive else archive[self._name]
        return CudaView(array, device, stream)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the elements are decoded, which makes a copy")
        whole: NDArray[Any] = self._read([(0, n, 1) for n in self._shape], self._shape)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """All elements, as a DLPack capsule of memory of their own: ``torch.from_dlpack(array)``.

        bfloat16 and the 8-bit floats need no ml_dtypes here.

        Raises:
            BufferError: DLPack has no such type (other byte orders, strings, structures, dates).
        """
        if options.pop("copy", None) is False:
            raise BufferError("the elements are decoded, which makes a copy")
        # What NumPy refuses, it refuses before all is decoded.
        capsule(np.empty(0, self._dtype), self._added, options)
        return capsule(self.__array__(), self._added, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous")
        return bool(self[...])

    def __float__(self) -> float:
        return float(self[...])

    def __int__(self) -> int:
        return int(self[...])

    def __reduce__(self) -> Any:
        return _unpickled, (self._archive, self._name)

    def __dask_tokenize__(self) -> object:
        return self._path, self._archive.__dask_tokenize__()

    def __repr__(self) -> str:
        return f"<fzmfs.Array {self._name!r} {_show.shape(self._shape)} {self._dtype}>"

    def _repr_html_(self) -> str:
        return _show.array(self)

    def _reader(self) -> Native:
        archive = self._archive
        archive._check_open()
        if self._generation != archive._current():
            self._native = archive._array(self._path)
            self._generation = archive._generation
        native = self._native
        if native is None:
            raise ValueError("the archive is closed")
        return native

    def _read(self, steps: list[tuple[int, int, int]], counts: tuple[int, ...]) -> NDArray[Any]:
        try:
            out = np.empty(counts, self._dtype)
        except ValueError as error:
            # Too many dimensions, or bytes.
            why = f"NumPy has no array of {_show.shape(counts)} elements: {error}"
            raise Error(errno.EFBIG, why, self._archive.source, "too_large", self._name) from None
        self._fill(steps, _bytes_of(out))
        return out

    def _fill(self, steps: list[tuple[int, int, int]], target: NDArray[np.uint8]) -> None:
        self._reader().read_steps(steps, target)


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of a contiguous array."""
    flat = array.reshape(-1)
    return flat.view(np.uint8) if flat.size and flat.dtype.itemsize else np.empty(0, np.uint8)


def _has_ellipsis(index: Any) -> bool:
    return index is Ellipsis or (isinstance(index, tuple) and any(part is Ellipsis for part in index))


def _unpickled(archive: Archive, name: str) -> Array:
    return archive[name]
