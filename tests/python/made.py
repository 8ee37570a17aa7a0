"""Containers that tests of the other packages share: one with several chunks, whole and broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from conftest import DATA
from numcodecs.zstd import Zstd

import fzmfs

ROWS = 100
OPTIONS = {"dtype": "<f4", "shape": (1500, 2003)}


def field() -> np.ndarray:
    """12 MB: `data.zarr` divides them into several chunks, the last of them cut."""
    y, x = np.arange(1500, dtype="f4")[:, None], np.arange(2003, dtype="f4")
    return np.round(np.sin(x / 100) * np.cos(y / 77) * 1000) / np.float32(8)


def frames(path: Path, *, broken: int | None = None) -> np.ndarray:
    """Writes `field` as frames of Zstandard with checksums, of 100 rows each; one of them can be broken."""
    data = field()
    with path.open("wb") as file:
        for number, start in enumerate(range(0, len(data), ROWS)):
            frame = bytearray(Zstd(level=1, checksum=True).encode(data[start : start + ROWS].tobytes()))
            if number == broken:
                frame[len(frame) // 2] ^= 0x10
            file.write(frame)
    return data


def corpus() -> Iterator[tuple[Path, fzmfs.Archive]]:
    """The containers of tests/data, good and broken, that can be opened and have arrays; but for two that take as long as
    all others together, and have tests of their own."""
    for path in sorted(p for p in DATA.rglob("*") if p.suffix in (".fzm", ".b2nd", ".b2frame", ".b2z", ".zt", ".bin")):
        if path.name in ("huge_tables.b2z", "small_special_chunks.b2frame"):
            continue
        try:
            archive = fzmfs.open(path)
            if len(archive):
                yield path, archive
        except fzmfs.Error:
            continue


def outcome(read: object) -> tuple[str, bytes | None]:
    """What a read gives: the bytes, or that it raises fzmfs.Error; whatever else it raises passes."""
    try:
        return "read", np.ascontiguousarray(read()).tobytes()
    except fzmfs.Error:
        return "error", None
