"""Arrays on a real GPU, as PyTorch, CuPy and JAX take them there. Everywhere else these tests are skipped."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA
from test_cuda import FILES

import fzmfs

PARTS: list[Any] = [..., 0, -1, slice(1, 7), slice(2, None, 3), (..., slice(None, None, 2)), (None, 1, ...)]

pytestmark = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="there is no real GPU: /dev/nvidiactl")


def torch_bytes(view: Any) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return torch.from_dlpack(view).cpu().numpy()


def cupy_bytes(view: Any) -> np.ndarray:
    cupy = pytest.importorskip("cupy")
    return cupy.asnumpy(cupy.asarray(view))


def cupy_dlpack_bytes(view: Any) -> np.ndarray:
    cupy = pytest.importorskip("cupy")
    return cupy.asnumpy(cupy.from_dlpack(view))


def jax_bytes(view: Any) -> np.ndarray:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return np.asarray(jax.dlpack.from_dlpack(view))


PEERS = [torch_bytes, cupy_bytes, cupy_dlpack_bytes, jax_bytes]


def arrays() -> Iterator[tuple[str, Any, Any]]:
    """Every array of the corpora of FZM with bytes, on the GPU and as the CPU decodes it."""
    for path in sorted((DATA / "fzm").glob("*.fzm")) + sorted((DATA / "fzm2").glob("*.fzm")):
        try:
            on_cpu = fzmfs.open(path, device="cpu")
        except fzmfs.Error:
            continue
        on_gpu = fzmfs.open(path)
        for key, array in on_cpu.items():
            yield f"{path.name}/{key}", on_gpu[key], array


@pytest.mark.parametrize("peer", PEERS)
def test_every_array_has_the_bytes_of_the_cpu(peer: Callable[[Any], np.ndarray]) -> None:
    compared = refused = 0
    for name, array, on_cpu in arrays():
        try:
            want = on_cpu[...]
        except fzmfs.Error:
            continue
        try:
            got = peer(array.cuda())
        except fzmfs.Error as error:
            assert error.kind == "unsupported", (name, error)
            refused += 1
            continue
        assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes()), name
        compared += 1
    print(f"{compared} compared, {refused} have no kernels")
    assert compared > 20


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("peer", PEERS)
def test_parts_have_the_elements_of_the_cpu(peer: Callable[[Any], np.ndarray], name: str) -> None:
    array = fzmfs.open(DATA / "fzm" / name)["data"]
    want = fzmfs.open(DATA / "fzm" / name, device="cpu")["data"][...]
    for index in PARTS:
        view = array.cuda()[index]
        # JAX takes what is contiguous.
        if peer is jax_bytes and not np.asarray(want[index]).flags.c_contiguous:
            continue
        got, part = peer(view), np.asarray(want[index])
        assert (got.shape, got.tobytes()) == (part.shape, part.tobytes()), index


def test_memory_belongs_to_the_stream_it_is_made_for() -> None:
    torch = pytest.importorskip("torch")
    array = fzmfs.open(DATA / "fzm" / FILES[0])["data"]
    want = fzmfs.open(DATA / "fzm" / FILES[0], device="cpu")["data"][...]
    streams = [torch.cuda.Stream() for _ in range(4)]
    for round in range(100):
        stream = streams[round % len(streams)]
        with torch.cuda.stream(stream):
            tensor = torch.from_dlpack(array.cuda(stream=stream))
            twice = tensor * 2
        del tensor
        stream.synchronize()
        assert twice.cpu().numpy().tobytes() == (want * 2).tobytes()


def test_tensors_outlive_the_archive() -> None:
    torch = pytest.importorskip("torch")
    archive = fzmfs.open(DATA / "fzm" / FILES[0])
    want = archive["data"][...]
    tensor = torch.from_dlpack(archive["data"].cuda())
    archive.close()
    del archive
    gc.collect()
    assert tensor.cpu().numpy().tobytes() == want.tobytes()


def test_memory_is_given_back() -> None:
    torch = pytest.importorskip("torch")
    array = fzmfs.open(DATA / "fzm" / FILES[0])["data"]
    tensor = torch.from_dlpack(array.cuda())
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(2000):
        tensor = torch.from_dlpack(array.cuda())
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] <= 64 << 20
    assert tensor.shape == array.shape


def test_threads_decode_at_once() -> None:
    torch = pytest.importorskip("torch")
    wants = {name: fzmfs.open(DATA / "fzm" / name, device="cpu")["data"][...].tobytes() for name in FILES}
    opened = {name: fzmfs.open(DATA / "fzm" / name) for name in FILES}
    begin = threading.Barrier(8)

    def work(number: int) -> int:
        begin.wait()
        for round in range(50):
            name = FILES[(number + round) % len(FILES)]
            assert torch.from_dlpack(opened[name]["data"].cuda()).cpu().numpy().tobytes() == wants[name], name
        return 50

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 400
