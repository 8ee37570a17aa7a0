"""bfloat16 and the 8-bit floats of ml_dtypes as data types of zarr-python, which has none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import zarr.dtype
import zarr.errors
from zarr.dtype import ZDType, data_type_registry

from ._dtype import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

# It has moved, in zarr-python 3.2.
_Other: Any = getattr(zarr.errors, "DataTypeValidationError", None) or getattr(zarr.dtype, "DataTypeValidationError", ValueError)


@dataclass(frozen=True)
class _Added(ZDType):  # type: ignore[type-arg]
    """The type that Zarr and ml_dtypes call ``_zarr_v3_name``."""

    dtype_cls: ClassVar[Any]
    _native: ClassVar[Any]
    _zarr_v3_name: ClassVar[str]

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Any:
        if dtype == cls._native():
            return cls()
        raise _Other(f"{dtype} is not {cls._zarr_v3_name}")

    def to_native_dtype(self) -> Any:
        return self._native()

    @classmethod
    def _from_json_v2(cls, data: Any) -> Any:
        raise _Other(f"Zarr 2 has no {cls._zarr_v3_name}")

    @classmethod
    def _from_json_v3(cls, data: Any) -> Any:
        if data == cls._zarr_v3_name:
            return cls()
        raise _Other(f"{data!r} is not {cls._zarr_v3_name}")

    def to_json(self, zarr_format: Any) -> Any:
        return self._zarr_v3_name

    def _check_scalar(self, data: object) -> bool:
        try:
            self.cast_scalar(data)
        except (TypeError, ValueError):
            return False
        return True

    def cast_scalar(self, data: Any) -> Any:
        return self.to_native_dtype().type(data)

    def default_scalar(self) -> Any:
        return np.zeros((), self.to_native_dtype())[()]

    def from_json_scalar(self, data: Any, *, zarr_format: Any) -> Any:
        if isinstance(data, str) and data.startswith("0x"):
            native = self.to_native_dtype()
            return np.frombuffer(bytes.fromhex(data[2:]).rjust(native.itemsize, b"\0")[::-1], native)[0]
        return self.cast_scalar(float(data))

    def to_json_scalar(self, data: object, *, zarr_format: Any) -> Any:
        value = self.cast_scalar(data)
        return "0x" + np.asarray(value).tobytes()[::-1].hex()

    @property
    def item_size(self) -> int:
        size: int = self.to_native_dtype().itemsize
        return size


def _register() -> None:
    """Makes them known to zarr-python, unless it knows them."""
    try:
        import ml_dtypes
    except ImportError:
        return
    for name in sorted(NAMES & set(dir(ml_dtypes)) - set(data_type_registry.contents)):
        native = type(np.dtype(getattr(ml_dtypes, name)))
        # Pickles look for it here.
        added = type(name, (_Added,), {"__module__": __name__, "_zarr_v3_name": name, "dtype_cls": native, "_native": native})
        globals()[name] = added
        data_type_registry.register(name, added)


_register()


def are_known(names: Iterable[Any]) -> bool:
    """Whether zarr-python has all types of these names, with or without configurations."""
    return all((name if isinstance(name, str) else name["name"]) in data_type_registry.contents for name in names)
