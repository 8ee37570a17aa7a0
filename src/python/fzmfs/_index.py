"""NumPy's basic indexing, as what is to be read and how the result is to be shown.

An index is split in two: elements to read per dimension, always forwards, and a cheap view of the result (reversed
dimensions, dimensions without or with new axes), so that the elements are decoded straight into the result.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

Steps = tuple[int, int, int]
"""Start, count and step along one dimension; the step is positive."""


class Chosen(NamedTuple):
    """What an index means for an array."""

    steps: list[Steps]
    """What to read."""
    counts: tuple[int, ...]
    """The shape of what is read: that of the array, cut."""
    shape: tuple[int, ...]
    """The shape of the result: without integers, with new axes."""
    flips: tuple[slice, ...] | None
    """The index of the result that reverses dimensions; ``None`` if none is reversed."""


_ARRAYS = (
    "arrays are indexed with integers, slices, ... and newaxis; for a boolean or integer array read the elements around"
    " it and index those: a[lo:hi][index], or a[...][index] for all of the array"
)


def chosen(index: Any, shape: tuple[int, ...]) -> Chosen:
    """What ``index`` means for an array of ``shape``.

    Raises:
        IndexError: as NumPy does; also for boolean and integer arrays, which are not supported.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    used = 0
    ellipsis: int | None = None
    for at, part in enumerate(parts):
        if part is Ellipsis:
            if ellipsis is not None:
                raise IndexError("an index can only have a single ellipsis ('...')")
            ellipsis = at
        elif part is not None:
            used += 1
    if used > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} dimensions, but {used} were indexed")
    at = len(parts) if ellipsis is None else ellipsis
    parts[at : at + (ellipsis is not None)] = [slice(None)] * (len(shape) - used)

    steps: list[Steps] = []
    result: list[int] = []
    flips: list[slice] = []
    for part in parts:
        if part is None:
            result.append(1)
            flips.append(slice(None))
            continue
        length = shape[len(steps)]
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            count = len(range(start, stop, step))
            if step < 0:
                start += (count - 1) * step if count else 0
            # A step is as large as it likes if it leads nowhere.
            steps.append((start if count else 0, count, abs(step) if count > 1 else 1))
            result.append(count)
            flips.append(slice(None, None, -1 if step < 0 else None))
            continue
        steps.append((_integer(part, length, len(steps)), 1, 1))
    reversed_any = any(flip.step for flip in flips)
    return Chosen(steps, tuple(s[1] for s in steps), tuple(result), tuple(flips) if reversed_any else None)


def _integer(part: Any, length: int, axis: int) -> int:
    dimensions: Any = getattr(part, "ndim", 0)
    if dimensions or isinstance(part, (bool, np.bool_, list, tuple)):
        raise IndexError(_ARRAYS)
    try:
        number = operator.index(part)
    except TypeError:
        raise IndexError(f"{type(part).__name__} is not an index: {_ARRAYS}") from None
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
    return number + length if number < 0 else number
