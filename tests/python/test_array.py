"""Arrays: indexing as NumPy has it, memory of the caller, other libraries."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import CASES, DATA, PATIENCE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs.zstd import Zstd

import fzmfs
from fzmfs import _dtype

# Grids of chunks and blocks, one blob in C order, stored bytes, a type of many bytes, dates, no elements, no dimensions.
ARRAYS = [
    ("blosc2/n05_5d_f4.b2nd", "data"),
    ("blosc2/o271_nd_3d_f8.b2nd", "data"),
    ("blosc2/n15_chunk_larger.b2nd", "data"),
    ("blosc2/n16_16dim.b2nd", "data"),
    ("blosc2/n14_wide_item_300.b2nd", "data"),
    ("blosc2/n10_datetime.b2nd", "data"),
    ("blosc2/n07_zero_first.b2nd", "data"),
    ("blosc2/n06_0d.b2nd", "data"),
    ("blosc2/n22_sframe_b2nd.b2nd", "data"),
    ("fzm/lq1d_f32_noa_rle.fzm", "data"),
    ("fzm/lor2d_wide.fzm", "data"),
    ("ztensor/v12-all-dtypes.zt", None),
    ("ztensor/v01-zstd-crc32c.zt", None),
]


@functools.cache
def opened(file: Path) -> fzmfs.Archive:
    return fzmfs.open(file)


@functools.cache
def pairs() -> list[tuple[fzmfs.Array, np.ndarray]]:
    """Each array, and the same in memory."""
    found = []
    for file, name in ARRAYS:
        archive = opened(DATA / file)
        for array in [archive[name]] if name else archive.values():
            raw = archive.read(array._path, 0, array.nbytes)
            found.append((array, np.frombuffer(raw, array.dtype).reshape(array.shape)))
    return found


def same(got: object, want: object) -> bool:
    got, want = np.asarray(got), np.asarray(want)
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@st.composite
def shaped(draw: st.DrawFn) -> tuple[fzmfs.Array, np.ndarray]:
    """A stream of bytes with any type and shape, and the same in memory."""
    dtype = draw(st.sampled_from(["u1", ">i2", "<f8", "S3", [("a", "<i4"), ("b", "u1")]]))
    shape = draw(st.lists(st.integers(0, 12), max_size=6).filter(lambda shape: math.prod(shape) <= 4000))
    name = DATA / "zstd/mixed-generations.zst"
    raw = opened(name).read("data.raw", 0, 4000 * 8)
    want = np.frombuffer(raw, dtype, math.prod(shape)).reshape(shape)
    return fzmfs.open(name, dtype=dtype, shape=tuple(shape), threads=1)["data"], want


@st.composite
def cases(draw: st.DrawFn) -> tuple[fzmfs.Array, np.ndarray, object]:
    array, want = draw(st.one_of(st.sampled_from(pairs()), shaped()))
    dims = draw(st.integers(0, array.ndim))
    parts: list[object] = []
    for length in array.shape[:dims]:
        # A bound may be anything, also out of the array.
        bound = st.none() | st.integers(-length - 3, length + 3) | st.sampled_from([-(10**30), 10**30])
        step = st.none() | st.integers(-length - 2, length + 2).filter(bool) | st.sampled_from([-(10**30), 10**30])
        kinds = [st.builds(slice, bound, bound, step)]
        if length:
            kinds.append(st.integers(-length, length - 1) | st.integers(0, length - 1).map(np.int64))
        parts.append(draw(st.one_of(kinds)))
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if draw(st.booleans()) or array.ndim == 0:
        # From the end: the dimensions given are then the first ones no longer.
        parts = parts if any(isinstance(p, (int, np.integer)) for p in parts) else parts[::-1]
        parts.append(...)
    return array, want, tuple(parts) if len(parts) != 1 or draw(st.booleans()) else parts[0]


@settings(max_examples=4 * CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_indexing_is_that_of_numpy(case: tuple[fzmfs.Array, np.ndarray, object]) -> None:
    array, want, index = case
    want = want[index]
    got = array[index]
    assert type(got) is type(want) and same(got, want)
    if isinstance(want, np.ndarray):
        out = np.empty_like(want)
        assert array.read(index, out=out) is out and same(out, want)
        assert not got.size or not np.shares_memory(got, array[index])


@pytest.mark.parametrize("index", [9, -6, (0, 0, 0, 0, 0, 0), (..., ...), (0, 99)])
def test_indices_outside_are_those_of_numpy(b2nd: str, index: object) -> None:
    array = fzmfs.open(b2nd)["data"]
    with pytest.raises(IndexError):
        np.zeros(array.shape)[index]
    with pytest.raises(IndexError):
        array[index]


@pytest.mark.parametrize("index", [[0, 1], np.array([0, 1]), True, np.True_, (0, [1]), np.zeros(5, bool), 1.5, "a"])
def test_arrays_as_indices_say_what_to_do(b2nd: str, index: object) -> None:
    with pytest.raises(IndexError, match=r"a\[lo:hi\]\[index\]"):
        fzmfs.open(b2nd)["data"][index]


def test_a_step_of_zero_is_an_error(b2nd: str) -> None:
    with pytest.raises(ValueError, match="zero"):
        fzmfs.open(b2nd)["data"][::0]


def test_attributes_are_those_of_numpy(b2nd: str) -> None:
    for array, want in pairs():
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize"):
            assert getattr(array, name) == getattr(want, name), (array, name)
        assert len(array.chunks) == array.ndim and all(n > 0 for n in array.chunks), array
        if array.ndim:
            assert len(array) == len(want)
    array = fzmfs.open(b2nd)["data"]
    assert [part.shape for part in array] == [(4, 6, 3, 7)] * 5
    zero = fzmfs.open(DATA / "blosc2/n06_0d.b2nd")["data"]
    for use in (len, iter):
        with pytest.raises(TypeError):
            use(zero)
    assert float(zero) == float(zero[()]) and zero[()].ndim == 0 and isinstance(zero[...], np.ndarray)


def test_out_is_filled_in_place_or_converted(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    want = array[...]
    out = np.empty((5, 4, 6, 3, 7), "<f8")
    assert same(array.read(out=out), want.astype("<f8"))
    wide = np.zeros((5, 4, 6, 3, 14), "<f4")
    array.read(out=wide[..., ::2])
    assert same(wide[..., ::2].copy(), want) and not wide[..., 1::2].any()
    backwards = np.empty((5, 4, 6, 3, 7), "<f4")
    array.read(out=backwards[::-1])
    assert same(backwards, want[::-1])
    with pytest.raises(ValueError, match="shape"):
        array.read(0, out=out)
    with pytest.raises(TypeError):
        array.read(out=np.empty(array.shape, "i2"))
    out.flags.writeable = False
    with pytest.raises(ValueError):
        array.read(out=out)


def test_read_into_takes_every_writable_buffer(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    want = array[1:3].tobytes()
    buffers = [bytearray(len(want)), memoryview(bytearray(len(want) + 5)), mmap.mmap(-1, len(want)), np.zeros(2000, "u8")]
    for buffer in buffers:
        assert array.read_into(buffer, np.s_[1:3]) == len(want)
        assert bytes(memoryview(buffer).cast("B")[: len(want)]) == want
    for buffer in (bytearray(len(want) - 1), bytes(len(want)), bytearray()):
        with pytest.raises(ValueError):
            array.read_into(buffer, np.s_[1:3])
    with pytest.raises(ValueError):
        array.read_into(bytearray(len(want)), np.s_[2:0:-1])


def test_objects_are_never_filled_with_bytes(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    objects = np.empty(array.shape, object)
    fields = np.zeros(array.size, [("Object", "i4"), ("b", "O")])
    for buffer in (objects, fields, (ctypes.py_object * array.size)()):
        with pytest.raises(TypeError, match="Python objects"):
            array.read_into(buffer)
    assert all(each is None for each in objects.flat)
    for_bytes = np.zeros(array.size, [("Other", "<f4")])
    assert array.read_into(for_bytes) == array.nbytes and same(for_bytes["Other"].reshape(array.shape), array[...])
    assert array.read(out=objects) is objects and (objects == array[...]).all()


def test_memory_with_rules_of_its_own_is_refused(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    for out in (np.matrix(np.empty((3, 7), "f4")), np.ma.masked_array(np.empty((3, 7), "f4"), mask=True)):
        with pytest.raises(TypeError, match="without a mask and no matrix"):
            array.read(np.s_[0, 0, 0], out=out)


def test_memory_that_another_thread_fills_is_refused(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    out = np.empty(array.shape, array.dtype)
    refused = []

    def fill() -> None:
        while not refused:
            try:
                array.read(out=out)
            except ValueError as error:
                refused.append(str(error))

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fill) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(switch)
    assert "another thread is reading into it" in refused[0] and same(array.read(out=out), array[...])


def test_a_capsule_that_numpy_refuses_decodes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "broken.zst"
    path.write_bytes(Zstd(level=1, checksum=True).encode(bytes(4096))[:-1] + b"?")
    array = fzmfs.open(path, dtype="f4")["data"]
    for wrong in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": False}):
        with pytest.raises((BufferError, RuntimeError, ValueError, TypeError)) as caught:
            array.__dlpack__(**wrong)
        assert not isinstance(caught.value, OSError)
    with pytest.raises(fzmfs.Error):
        array.__dlpack__(max_version=(1, 0))


def test_numpy_takes_an_array(b2nd: str) -> None:
    array = fzmfs.open(b2nd)["data"]
    want = array[...]
    assert same(np.asarray(array), want) and same(np.asarray(array, "f8"), want.astype("f8"))
    assert same(np.from_dlpack(array), want) and array.__dlpack_device__() == (1, 0)
    assert np.allclose(np.add(array, 1), want + 1)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError):
            np.asarray(array, copy=False)


def test_added_types_are_those_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = {array.dtype for array in fzmfs.open(DATA / "ztensor/v12-all-dtypes.zt").values()}
    assert np.dtype(ml_dtypes.bfloat16) in found
    logical = {array.dtype for array in fzmfs.open(DATA / "ztensor/v12-logical-types.zt").values()}
    assert np.dtype(ml_dtypes.float8_e4m3fn) in logical, logical


def test_dlpack_needs_no_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    _dtype.numpy_dtype.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    try:
        array = fzmfs.open(DATA / "ztensor/v12-all-dtypes.zt")["t.bf16"]
        assert array.dtype == np.dtype("V2")
        with pytest.raises((BufferError, RuntimeError, TypeError)):
            # NumPy itself has no such type; what it is told must then be that.
            np.from_dlpack(array)
        assert "dltensor" in repr(array.__dlpack__())
        has_versions = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
        assert ("versioned" in repr(array.__dlpack__(max_version=(1, 0)))) == has_versions
    finally:
        _dtype.numpy_dtype.cache_clear()
    with pytest.raises(BufferError):
        array.__dlpack__(copy=False)


@pytest.mark.parametrize(
    "descr",
    ["|O", "[('a', '|O')]", "[('a', '<i4'), ('a', '<i4')]", "[" * 5000, "<q9", "[('a', '<f4', (99999999999,))]"],
)
def test_types_that_numpy_lacks_are_value_errors(descr: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        _dtype.numpy_dtype(descr, None)


def test_large_reads_are_divided_and_put_together(tmp_path: Path) -> None:
    # Three frames of 100 MiB of one byte each.
    path = tmp_path / "large.zst"
    frame = b""
    for byte in b"abc":
        head = b"\x28\xb5\x2f\xfd\x80\x38" + (100 << 20).to_bytes(4, "little")
        blocks = [((128 << 10) << 3 | 2 | (n == 799)).to_bytes(3, "little") + bytes([byte]) for n in range(800)]
        frame += head + b"".join(blocks)
    path.write_bytes(frame)
    array = fzmfs.open(path, dtype="u1", shape=(300, 1024, 1024), threads=2)["data"]
    whole = array[...]
    assert all((whole[100 * n : 100 * n + 100] == byte).all() for n, byte in enumerate(b"abc"))
    assert np.array_equal(array[:, ::-1], whole) and np.array_equal(array[10:299], whole[10:299])
    assert len(fzmfs.open(path).read("data.raw")) == 300 << 20


def test_threads_share_an_array() -> None:
    array, want = next(pair for pair in pairs() if pair[0].shape == (5, 4, 6, 3, 7))
    fresh = fzmfs.open(array._archive.source, threads=2)["data"]

    def read(at: int) -> bool:
        index = np.s_[at % 5, :, at % 6 :: 2]
        return same(fresh[index], want[index])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(400)))


def test_pieces_that_are_not_touched_are_not_decoded(tmp_path: Path) -> None:
    # A broken chunk is an error where it is touched, and only there.
    source = Path(DATA / "blosc2/n05_5d_f4.b2nd").read_bytes()
    clean = fzmfs.open(DATA / "blosc2/n05_5d_f4.b2nd")
    stored = {entry.path: entry.size for entry in clean.files("stored")}
    body = clean.read(max(stored, key=lambda path: stored[path] or 0))
    at = source.index(body)
    path = tmp_path / "broken.b2nd"
    path.write_bytes(source[: at + 40] + bytes(x ^ 0xFF for x in source[at + 40 : at + len(body)]) + source[at + len(body) :])
    array, want = fzmfs.open(path)["data"], clean["data"][...]
    wrong = good = 0
    for index in np.ndindex(5, 4, 6, 3):
        try:
            good += same(array[index], want[index])
        except fzmfs.Error as error:
            assert error.kind in ("corrupt", "truncated", "checksum"), error
            wrong += 1
    assert wrong and good > wrong and good + wrong == math.prod((5, 4, 6, 3))
    with pytest.raises(fzmfs.Error):
        array[...]


def test_an_array_is_pickled_with_its_source(b2nd: str) -> None:
    array = fzmfs.open(b2nd, cache="8M")["data"]
    copy = pickle.loads(pickle.dumps(array))
    assert same(copy[1:2, ::-1], array[1:2, ::-1]) and copy._archive._options == array._archive._options
