"""Arrays on a GPU, over the driver of the Rust tests: a GPU that is the host, so that its memory can be looked at."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA

import fzmfs

ROOT = Path(__file__).parents[2]
FILES = ["lq1d_f32_abs.fzm", "lq1d_f64_u16_noa.fzm", "lor3d_i8_rle.fzm", "lor2d_wide.fzm", "diff_i32nb_bs4_rze.fzm"]


class Tensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor of DLPack."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


@pytest.fixture(scope="session", autouse=True)
def driver() -> None:
    """Loads the driver: fzmfs finds it by its name."""
    made = sorted(ROOT.glob("target/**/tmp/libcuda-*/libcuda.so.1"), key=os.path.getmtime)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a real GPU, whose memory Python cannot look at")
    if not made:
        pytest.skip("no driver for the host: cargo test --test suite gpu_driver makes it")
    ctypes.CDLL(str(made[-1]), ctypes.RTLD_GLOBAL)


def seen(array: Any) -> np.ndarray:
    """What another library finds at the address."""

    class Host:
        __array_interface__ = array.__cuda_array_interface__
        owner = array

    return np.asarray(Host())


@pytest.mark.parametrize("name", FILES)
def test_slices_have_the_elements_of_the_cpu(name: str) -> None:
    array = fzmfs.open(DATA / "fzm" / name, device="cpu")["data"]
    want = array[...]
    rank = array.ndim
    indexes: list[Any] = [..., 0, -1, slice(1, 7), slice(2, None, 3), (..., slice(None, None, 2)), (None, 1, ...)]
    indexes += [(0,) * rank, slice(3, 3), (slice(1, 3),) * rank, (slice(None),) * rank, (..., -1)]
    for index in indexes:
        got = array.cuda()[index]
        view = np.asarray(want[index])
        assert (got.shape, got.dtype, got.device, got.nbytes) == (view.shape, want.dtype, 0, view.nbytes), index
        assert seen(got).tobytes() == view.tobytes(), index
        assert got.__cuda_array_interface__["stream"] is None


def test_the_whole_array_is_what_other_libraries_take() -> None:
    array = fzmfs.open(DATA / "fzm" / FILES[0])["data"]
    view = array.cuda(0)
    assert (view.shape, view.dtype, len(view)) == (array.shape, array.dtype, len(array))
    assert seen(view).tobytes() == array[...].tobytes()
    assert view.__dlpack_device__() == (2, 0) == view[1:].__dlpack_device__()
    for copy in (None, True):
        capsule = view.__dlpack__(stream=1, max_version=(1, 0), copy=copy, dl_device=(2, 0))
        assert "dltensor" in repr(capsule)


def test_a_capsule_has_place_and_shape_and_frees_the_memory() -> None:
    archive = fzmfs.open(DATA / "fzm" / FILES[0], gpu_memory=1 << 20)
    array = archive["data"]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
    want = array[2:50:3]
    used = b"used_dltensor"
    for number in range(300):
        capsule = array.cuda()[2:50:3].__dlpack__()
        managed = Managed.from_address(pointer(capsule, b"dltensor"))
        tensor = managed.tensor
        assert (list(tensor.device), tensor.ndim, tensor.code, tensor.bits) == ([2, 0], 1, 2, 32)
        assert (tensor.shape[0], tensor.strides[0], tensor.offset) == (len(want), 3, 0)
        # As a library that takes it: the capsule is used up, its memory lives on until the deleter is called.
        rename(capsule, used)
        del capsule
        if number % 50 == 0:
            gc.collect()  # takes longer than the rest
        span = np.frombuffer(ctypes.string_at(tensor.data, 4 * (3 * len(want) - 2)), "<f4")
        assert span[::3].tobytes() == want.tobytes()
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))


def test_what_cannot_be_is_said() -> None:
    archive = fzmfs.open(DATA / "fzm" / FILES[0])
    view = archive["data"].cuda()
    for index in (slice(None, None, -1), [1, 2], True, 10**9, np.arange(3)):
        with pytest.raises(IndexError):
            view[index]
    with pytest.raises(BufferError, match="shared"):
        view[:5].__dlpack__(copy=True)
    with pytest.raises(BufferError, match="makes a copy"):
        view.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="on cuda:0"):
        view[:5].__dlpack__(dl_device=(1, 0))
    with pytest.raises(TypeError, match="not a stream"):
        archive["data"].cuda(stream="fast")
    with pytest.raises(fzmfs.Error, match="there is no GPU 7") as error:
        archive["data"].cuda(7)
    assert error.value.kind == "usage"
    blosc = fzmfs.open(DATA / "blosc2/n05_5d_f4.b2nd")
    with pytest.raises(fzmfs.Error, match="FZM") as error:
        blosc["data"].cuda()[0]
    assert error.value.kind == "unsupported"
    small = fzmfs.open(DATA / "fzm" / FILES[0], gpu_memory=1024)
    with pytest.raises(fzmfs.Error, match="gpu_memory="):
        small["data"].cuda()[...]
    archive.close()
    with pytest.raises(ValueError, match="closed"):
        view[0]


def test_broken_files_raise_what_the_cpu_raises() -> None:
    compared = 0
    for path in sorted((DATA / "fzm/bad").rglob("*.fzm")):
        try:
            array = fzmfs.open(path)["data"]
        except (fzmfs.Error, KeyError):
            continue
        try:
            array[...]
        except fzmfs.Error as error:
            with pytest.raises(fzmfs.Error) as got:
                array.cuda()[...]
            assert (got.value.kind, got.value.field) == (error.kind, error.field), path
            compared += 1
    assert compared > 3


class Stream:
    """A stream as PyTorch and cuda.core name theirs; the driver of the tests has one at 0."""

    def __init__(self, protocol: str) -> None:
        if protocol == "__cuda_stream__":
            self.__cuda_stream__ = lambda: (0, 0)
        else:
            setattr(self, protocol, 0)


@pytest.mark.parametrize("protocol", ["__cuda_stream__", "cuda_stream", "ptr"])
def test_memory_may_belong_to_a_stream(protocol: str) -> None:
    array = fzmfs.open(DATA / "fzm" / FILES[0])["data"]
    for stream in (0, Stream(protocol)):
        part = array.cuda(stream=stream)[5:25]
        del stream
        gc.collect()
        assert seen(part).tobytes() == array[5:25].tobytes()
