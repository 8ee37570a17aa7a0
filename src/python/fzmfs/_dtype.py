"""Element types: those of NumPy, and those that ml_dtypes adds to it."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy as np

# By the name of the type in the container.
_ADDED = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2": "float8_e5m2",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0": "float8_e8m0fnu",
}


@functools.lru_cache(maxsize=256)
def numpy_dtype(descr: str, name: str | None) -> np.dtype[Any]:
    """The type with the ``descr`` of a .npy header, which the container calls ``name``.

    bfloat16 and the 8-bit floats are those of ml_dtypes where it is installed, else opaque bytes (``V2``, ``V1``).
    """
    # As numpy.load does; a list of fields is a literal.
    literal: Any = ast.literal_eval(descr) if descr[:1] in "[(" else descr
    dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(literal)
    added = _ADDED.get(name or "") if dtype.kind == "V" and dtype.names is None else None
    if added is None:
        return dtype
    try:
        import ml_dtypes
    except ImportError:
        return dtype
    return np.dtype(getattr(ml_dtypes, added, dtype))
