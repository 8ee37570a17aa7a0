from collections.abc import Callable
from datetime import timedelta
from typing import final

import numpy as np
from numpy.typing import NDArray

_Row = tuple[str, str, int | None]

def list_directory(
    source: str,
    *,
    timeout: timedelta | None = None,
    unpinned: bool | None = None,
    remote_cache: tuple[str, int | None] | None = None,
) -> list[tuple[str, bool]] | None: ...
@final
class Archive:
    def __new__(
        cls,
        source: str,
        *,
        verify: str | None = None,
        cache: int | None = None,
        spill: int | None = None,
        threads: int | None = None,
        device: str | None = None,
        gpu_memory: int | None = None,
        format: str | None = None,
        dict: list[str] | None = None,
        dtype: str | None = None,
        shape: list[int] | tuple[int, ...] | None = None,
        spacing: list[float] | None = None,
        units: str | None = None,
        window: int | None = None,
        timeout: timedelta | None = None,
        expect: str | None = None,
        unpinned: bool | None = None,
        remote_cache: tuple[str, int | None] | None = None,
        index: str | None = None,
        index_size: int | None = None,
    ) -> Archive: ...
    @property
    def path(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def modified(self) -> float: ...
    def info(self) -> str: ...
    def arrays(self) -> list[tuple[str, str]]: ...
    def walk(self, path: str, below: bool) -> Walk: ...
    def entry(self, path: str) -> _Row: ...
    def file(self, path: str) -> File: ...
    def array(self, path: str) -> Array | None: ...
    def check(self) -> None: ...
    def verify(self, progress: Callable[[int, int | None], object] | None) -> tuple[int, int, int | None]: ...

@final
class Walk:
    def more(self, count: int) -> list[_Row]: ...

@final
class File:
    def __len__(self) -> int: ...
    def read_into(self, offset: int, buffer: NDArray[np.uint8]) -> None: ...

@final
class Array:
    @property
    def descr(self) -> str: ...
    @property
    def type_name(self) -> str | None: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def chunks(self) -> list[int]: ...
    @property
    def stored(self) -> int: ...
    def attributes(self) -> str: ...
    def decode_to_device(self, first: int, count: int, stream: tuple[int, object] | None) -> DeviceBuffer: ...
    def read_steps(self, steps: list[tuple[int, int, int]], buffer: NDArray[np.uint8]) -> None: ...

@final
class DeviceBuffer:
    @property
    def address(self) -> int: ...
