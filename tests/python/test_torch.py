"""Checkpoints: tensors of zTensor in PyTorch, beside what safetensors' own loader gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from conftest import DATA

import fzmfs

FILES = ["v12-all-dtypes.zt", "v11-all-dtypes.zt", "v10-all-dtypes-raw.zt", "v12-pypi.zt", "v20-pypi-zstd.zt"]


def needed() -> object:
    return pytest.importorskip("torch", reason="torch is not installed: scripts/python --all")


def saved(name: str, tmp_path: Path) -> Path:
    """The checkpoint as the container shows it for safetensors."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(fzmfs.open(DATA / "ztensor" / name).read("model.safetensors"))
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_loads_as_it_does_from_safetensors(name: str, tmp_path: Path) -> None:
    torch = needed()
    with safetensors.safe_open(saved(name, tmp_path), "pt") as file:
        want = {key: file.get_tensor(key) for key in file.keys()}
    with fzmfs.open(DATA / "ztensor" / name) as archive:
        loaded = {key: torch.from_dlpack(tensor) for key, tensor in archive.items()}
    assert len(want) > 1 and want.keys() <= loaded.keys()
    for key, tensor in want.items():
        assert loaded[key].dtype == tensor.dtype and loaded[key].shape == tensor.shape, key
        # Bit for bit, with the values that are not equal to themselves.
        same = [each.contiguous().reshape(-1).view(torch.uint8) for each in (loaded[key], tensor)]
        assert torch.equal(*same), key


def test_the_line_of_the_guide_loads_a_checkpoint() -> None:
    torch = needed()
    path = DATA / "ztensor/v20-pypi-zstd.zt"
    loaded = {name: torch.from_dlpack(tensor) for name, tensor in fzmfs.open(path).items()}
    assert loaded and all(isinstance(tensor, torch.Tensor) for tensor in loaded.values())
    # Memory of their own, which may be written to.
    name = next(name for name, tensor in loaded.items() if tensor.dtype == torch.float32)
    loaded[name].zero_()
    assert fzmfs.open(path)[name][...].any()


def test_types_that_numpy_lacks_are_those_of_torch() -> None:
    torch = needed()
    for file, name, dtype in (
        ("v12-all-dtypes.zt", "t.bf16", torch.bfloat16),
        ("v12-logical-types.zt", "fp8", torch.float8_e4m3fn),
        ("v12-logical-types.zt", "fp8b", torch.float8_e5m2),
    ):
        tensor = fzmfs.open(DATA / "ztensor" / file)[name]
        loaded = torch.from_dlpack(tensor)
        assert loaded.dtype == dtype and loaded.shape == tensor.shape
        assert loaded.view(torch.uint8).numpy().tobytes() == tensor[...].tobytes()


@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_loads_in_numpy_as_it_does_from_safetensors(name: str, tmp_path: Path) -> None:
    count = 0
    with safetensors.safe_open(saved(name, tmp_path), "np") as file, fzmfs.open(DATA / "ztensor" / name) as archive:
        for key in file.keys():
            tensor = archive[key]
            if tensor.dtype.kind in "biufc" and tensor.dtype.isnative:
                assert np.from_dlpack(tensor).tobytes() == file.get_tensor(key).tobytes(), key
                count += 1
    assert count > 1


def test_broken_tensors_are_errors(tmp_path: Path) -> None:
    failed = 0
    for path in sorted((DATA / "ztensor/bad").iterdir()):
        try:
            archive = fzmfs.open(path)
            names = list(archive)
        except OSError:
            continue
        for name in names:
            try:
                np.from_dlpack(archive[name])
            except fzmfs.Error:
                failed += 1
            except BufferError:
                pass
    assert failed > 5, failed
