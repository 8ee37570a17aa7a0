"""The files that ztensor's own Python tests write, as that library reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import ztensor
from conftest import said, source

import fzmfs

FILES = sorted(source("ZTENSOR_FILES").rglob("*.zt"))


def escaped(name: str) -> str:
    """The path of a tensor, with the escapes of a tree."""
    parts = ["".join(f"%{ord(c):02X}" if ord(c) < 0x20 or c in "\x7f%" else c for c in part) for part in name.split("/")]
    return "/".join({"": "%", ".": "%2E", "..": "%2E%2E"}.get(part, part) for part in parts)


@pytest.mark.parametrize("path", [path for path in FILES if not path.is_symlink()], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_tensor_is_what_ztensor_reads(path: Path) -> None:
    try:
        theirs = ztensor.open(str(path))
    except Exception as error:  # noqa: BLE001 - a test breaks it, and the library says how
        with pytest.raises(fzmfs.Error):
            fzmfs.open(path).verify()
        said(f"ztensor: {path.name} is refused by both: {error}")
        return
    archive = fzmfs.open(path)
    count = 0
    for name, tensor in ((name, theirs[name]) for name in theirs):
        for role in tensor.parts:
            part, is_dense = tensor[role], len(tensor.parts) == 1 and role == "data"
            at = f"tensors/{escaped(name)}.raw" if is_dense else f"tensors/{escaped(name)}/{escaped(role)}.raw"
            assert archive.read(at) == part.tobytes(), at
            count += 1
    assert count == sum(entry.path.endswith(".raw") for entry in archive.files("tensors"))
