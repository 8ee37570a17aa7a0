"""Arrays on a GPU: what is indexed is decoded there and stays there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ._dlpack import capsule, moved_to
from ._index import chosen

if TYPE_CHECKING:
    from ._array import Array
    from ._native import DeviceBuffer

# DLDeviceType of CUDA.
_CUDA = 2


class CudaArray:
    """Elements in the memory of a GPU, decoded there; :meth:`fzmfs.Array.cuda` makes it.

    ``torch.from_dlpack``, ``cupy.from_dlpack``, ``jax.dlpack.from_dlpack`` and everything that takes
    ``__cuda_array_interface__`` use the same memory. It is freed with the last of them.
    """

    def __init__(self, array: Array, view: np.ndarray[Any, Any], buffer: DeviceBuffer | None, device: int) -> None:
        self._added = array._added
        self._device = device
        # What frees it, and an array of NumPy at its address: nothing here looks at the elements.
        self._memory = _Memory(buffer, view.shape, view.strides, view.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension, slowest first."""
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, per dimension."""
        return self._memory.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, with its byte order."""
        return self._memory.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> int:
        """The number of the GPU."""
        return self._device

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # The elements are complete: there is no stream to wait for.
        return {**self._memory.__array_interface__, "stream": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self._device)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the same memory. ``stream`` has nothing to wait for: the elements are complete.

        Raises:
            BufferError: DLPack has no such type (other byte orders, strings, structures, dates), or a copy, or another
                device, is asked for.
        """
        del stream
        if copy:
            raise BufferError("the memory is shared: copy the array of the library that takes it")
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"the elements are on cuda:{self._device}")
        options = {} if max_version is None else {"max_version": max_version}
        return moved_to(self.__dlpack_device__(), capsule(np.asarray(self._memory), self._added, options))

    def __repr__(self) -> str:
        return f"<fzmfs.CudaArray {self.shape} {self.dtype} on cuda:{self._device}>"


class CudaView:
    """An array, read onto a GPU where it is indexed; as a whole where another library takes it."""

    def __init__(self, array: Array, device: int, stream: object) -> None:
        self._array = array
        self._device = device
        self._stream = None if stream is None else (_handle(stream), stream)
        self._whole: CudaArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension, slowest first."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, with its byte order."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> CudaArray:
        """The elements at ``index``, integers, slices with positive steps, ``...`` and ``numpy.newaxis``.

        Everything from the first to the last of them is decoded and kept, with steps and ends of rows left out by
        strides: index the slowest dimensions.

        Raises:
            IndexError: out of bounds, a negative step, or a boolean or integer array.
            fzmfs.Error: there is no GPU, its memory does not suffice, no GPU decodes the array, or it is broken.
        """
        array = self._array
        if chosen(index, array.shape).flips is not None:
            raise IndexError("arrays on a GPU have no negative steps")
        # NumPy finds shape, strides and place; with an ellipsis it looks at no element.
        index = index if isinstance(index, tuple) else (index,)
        whole = np.asarray(_Memory(None, array.shape, None, array.dtype))
        view = whole[index if any(part is Ellipsis for part in index) else (*index, ...)]
        buffer = None
        if view.size:
            first = (view.ctypes.data - whole.ctypes.data) // view.itemsize
            steps = zip(view.shape, view.strides, strict=True)
            count = sum((n - 1) * stride for n, stride in steps) // view.itemsize + 1
            buffer = array._reader().decode_to_device(first, count, self._stream)
        return CudaArray(array, view, buffer, self._device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # The taker keeps this object.
        self._whole = self._whole or self[...]
        return self._whole.__cuda_array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self._device)

    def __dlpack__(self, **options: Any) -> Any:
        if options.pop("copy", None) is False:
            raise BufferError("the elements are decoded, which makes a copy")
        return self[...].__dlpack__(**options)

    def __repr__(self) -> str:
        return f"<{self._array!r} on cuda:{self._device}>"


class _Memory:
    """Elements at an address, and what frees them; NumPy makes an array of it without looking there."""

    def __init__(
        self,
        buffer: DeviceBuffer | None,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: np.dtype[Any],
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.strides = strides or ()
        self.dtype = dtype
        # Never 0, which asks NumPy for memory.
        address = 256 if buffer is None else buffer.address
        self.__array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
            "descr": dtype.descr,
            "data": (address, False),
            "version": 3,
        }


def _handle(stream: object) -> int:
    """The number of a stream, however its library names it."""
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise TypeError(f"{type(stream).__name__} is not a stream: an integer, or a stream of PyTorch, CuPy or cuda.core")
