"""Element types: those of NumPy, and those that ml_dtypes adds to it."""

from __future__ import annotations

import ast
import contextlib
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
NAMES = frozenset(_ADDED.values())
"""The names of the types that ml_dtypes adds."""


def given_type(given: object) -> str:
    """The element type that a user gives: its ``descr``, or its name in ml_dtypes.

    Raises:
        ValueError: elements in a file have no such type.
        TypeError: neither NumPy nor ml_dtypes has it.
    """
    if isinstance(given, str) and given in NAMES:
        with contextlib.suppress(ImportError):
            import ml_dtypes  # noqa: F401  which adds them to NumPy
    dtype = np.dtype(given)  # type: ignore[call-overload]
    if dtype.name in NAMES:
        return str(dtype.name)
    descr: Any = dtype.descr if dtype.names else dtype.str
    # A shape of its own, and types that others add to NumPy, are lost there.
    if dtype.hasobject or not dtype.itemsize or np.lib.format.descr_to_dtype(descr) != dtype:
        raise ValueError(f"dtype: {dtype} is not a type of elements in a file")
    return str(descr)


def native_type(given: str) -> str:
    """The ``descr`` of what :func:`given_type` returns."""
    return ("<V2" if given == "bfloat16" else "|V1") if given in NAMES else given


def added_name(descr: str, name: str | None) -> str | None:
    """The name in ml_dtypes of what the container, or the user, calls ``name``, of this ``descr``; ``None`` if NumPy has
    the type."""
    name = name or ""
    return _ADDED.get(name, name if name in NAMES else None) if descr in ("|V1", "|V2", "<V2") else None


@functools.lru_cache(maxsize=256)
def numpy_dtype(descr: str, added: str | None) -> np.dtype[Any]:
    """The type with the ``descr`` of a .npy header, which ml_dtypes calls ``added``.

    bfloat16 and the 8-bit floats are those of ml_dtypes where it is installed, else opaque bytes (``V2``, ``V1``).

    Raises:
        ValueError, TypeError: NumPy has no such type, or it holds objects.
    """
    try:
        # As numpy.load does; a list of fields is a literal.
        literal: Any = ast.literal_eval(descr) if descr[:1] in "[(" else descr
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(literal)
    except (SyntaxError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if added is None:
        return dtype
    try:
        import ml_dtypes
    except ImportError:
        return dtype
    return np.dtype(getattr(ml_dtypes, added, dtype))
