"""DLPack capsules that NumPy cannot hand out: of bfloat16 and the 8-bit floats, and of memory on another device.

NumPy makes a capsule of integers, or of memory of the host, which is changed before anyone has seen it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

# DLDataTypeCode of DLPack 1.1, by the name of the type in ml_dtypes.
_CODES = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}

# Offset of the device in DLTensor: behind the data pointer.
_DEVICE = 8
# Offset of the type code: behind the device and the number of dimensions.
_CODE = _DEVICE + 8 + 4
# Where a capsule of each name has its DLTensor: at once, or behind version, context, deleter and flags.
_TENSOR = {b"dltensor": 0, b"dltensor_versioned": 32}


# Functions of our own: the types of those in ctypes.pythonapi belong to the whole process.
_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def capsule(array: Any, added: str | None, options: dict[str, Any]) -> Any:
    """The capsule of the NumPy array ``array``, whose memory must be writable and its own.

    ``added`` is the name in ml_dtypes of an element type that NumPy lacks.

    Raises:
        BufferError: DLPack has no such type.
    """
    code = _CODES.get(added or "")
    if code is None:
        return _of_numpy(array, options)
    integers = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    made = _of_numpy(integers, options)
    ctypes.c_uint8.from_address(_tensor(made) + _CODE).value = code
    return made


def _of_numpy(array: Any, options: dict[str, Any]) -> Any:
    # NumPy before 2.1 only has capsules without a version, which all that ask for a later one have to take.
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        options = {name: options[name] for name in options if name != "max_version"}
    return array.__dlpack__(**options)


def moved_to(device: tuple[int, int], made: Any) -> Any:
    """The capsule ``made``, whose memory is on ``device``: a DLDeviceType, and a number."""
    (ctypes.c_int32 * 2).from_address(_tensor(made) + _DEVICE)[:] = list(device)
    return made


def _tensor(made: Any) -> int:
    """The address of the DLTensor of a capsule."""
    name = _name_of(made)
    return int(_pointer(made, name)) + _TENSOR[name]
