"""`zarr_store` in zarr-python: the bytes of the arrays, the store's interface, errors."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import pickle
import shutil
from pathlib import Path

import made
import numpy as np
import pytest
import zarr
from conftest import DATA
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import fzmfs


def run(awaitable: object) -> object:
    return asyncio.run(awaitable)


async def listed(keys: object) -> list[str]:
    return [key async for key in keys]


def get(store: zarr.abc.store.Store, key: str, part: object = None) -> bytes | None:
    buffer = run(store.get(key, default_buffer_prototype(), part))
    return None if buffer is None else buffer.to_bytes()


def test_every_array_of_the_corpora_is_what_the_archive_reads() -> None:
    counts = {"read": 0, "error": 0}
    for path, archive in made.corpus():
        try:
            group = zarr.open_group(fzmfs.zarr_store(archive), mode="r")
        except fzmfs.Error:
            continue
        names = set(archive)
        for name, array in group.members(max_depth=None):
            if not isinstance(array, zarr.Array) or array.nbytes > 1 << 24:
                continue
            # Some names are escaped in the group.
            same = [n for n in (name, f"{name}/data") if n in names]
            if same:
                found = made.outcome(lambda: array[...])
                assert found == made.outcome(lambda: archive[same[0]][...]), (path, name)
                counts[found[0]] += 1
    assert counts["read"] > 300 and counts["error"] > 10, counts


def test_several_chunks_slices_and_steps(tmp_path: Path) -> None:
    data = made.frames(tmp_path / "x.zst")
    store = fzmfs.zarr_store(tmp_path / "x.zst", **made.OPTIONS)
    array = zarr.open_group(store, mode="r")["data"]
    assert array.nchunks > 2 and array.chunks == store.archive["data"].chunks and array.dtype == data.dtype
    assert np.array_equal(array[...], data)
    assert np.array_equal(array[700:1500:3, 5:2003:2], data[700:1500:3, 5:2003:2])
    assert np.array_equal(array.oindex[[3, 1400], [7, 9]], data[np.ix_([3, 1400], [7, 9])])
    assert not hasattr(zarr.open_group(store, mode="r"), "nothing")


def test_types_that_only_some_readers_have_are_beside_the_consolidated_metadata(b2nd: str) -> None:
    archive = fzmfs.open(DATA / "ztensor/v12-all-dtypes.zt")
    store = fzmfs.zarr_store(archive)
    root = json.loads(archive.read("data.zarr/zarr.json"))
    assert root["attributes"]["not_consolidated"] == {"t.bf16": "bfloat16"}
    assert "t.bf16" not in root["consolidated_metadata"]["metadata"]
    document = json.loads(archive.read("data.zarr/t.bf16/zarr.json"))
    assert (document["data_type"], document["fill_value"]) == ("bfloat16", 0.0)
    pytest.importorskip("ml_dtypes")
    array = zarr.open_group(store)["t.bf16"]
    assert array.dtype == archive["t.bf16"].dtype and array[...].tobytes() == archive["t.bf16"][...].tobytes()
    assert pickle.loads(pickle.dumps(array))[...].tobytes() == array[...].tobytes()
    # One that has no such array is as it is in a mount.
    assert get(fzmfs.zarr_store(b2nd), "zarr.json") == fzmfs.open(b2nd).read("data.zarr/zarr.json")


def test_hostile_metadata_stays_valid_and_bounded(tmp_path: Path) -> None:
    blosc2 = pytest.importorskip("blosc2")
    array = blosc2.asarray(np.arange(6.0).reshape(2, 3), urlpath=str(tmp_path / "x.b2nd"), mode="w")
    layers = array.schunk.vlmeta
    layers["deep"] = functools.reduce(lambda inner, _: [inner], range(100), None)
    layers["large"] = "x" * (2 << 20)
    layers["opaque"] = bytes(100_000)
    layers["_FillValue"] = "not a number"
    layers["attrs"] = json.dumps({"nan": [float("nan"), float("-inf")], "left_out": {}, 'a"\x00\u202e': 1})
    layers["dims"] = ["y", "y"]
    layers["numbers"] = {1: (1, 2), None: float("inf")}

    def refuse(word: str) -> None:
        raise AssertionError(word)

    archive = fzmfs.open(tmp_path / "x.b2nd")
    text = archive.read("data.zarr/data/zarr.json")
    assert len(text) < 1 << 14 and b"\x00" not in text
    document = json.loads(text, parse_constant=refuse)
    assert json.loads(archive.read("data.zarr/zarr.json"), parse_constant=refuse)["attributes"]["left_out"] == {}
    attributes = {"nan": ["NaN", "-Infinity"], "left_out": {}, 'a"\x00\u202e': 1}
    attributes["numbers"] = {"1": [1, 2], "null": "Infinity"}
    assert document["attributes"] == attributes and document["dimension_names"] == ["size_2", "size_3"]
    assert archive["data"].attrs == {**attributes, "_FillValue": "not a number"}
    assert np.array_equal(zarr.open_group(fzmfs.zarr_store(archive))["data"], np.arange(6.0).reshape(2, 3))


def test_the_store_reads_keys_and_ranges_as_the_archive_does(b2nd: str) -> None:
    store = fzmfs.zarr_store(b2nd)
    key = "data/c/0/0/0/0/0"
    whole = store.archive.read(f"data.zarr/{key}")
    assert get(store, key) == whole and len(whole) == 10080 and run(store.getsize(key)) == 10080
    size = len(whole)
    for part, want in (
        (RangeByteRequest(10, 30), whole[10:30]),
        (RangeByteRequest(size - 5, size + 5), whole[-5:]),
        (RangeByteRequest(size + 5, size + 9), b""),
        (OffsetByteRequest(10000), whole[10000:]),
        (SuffixByteRequest(7), whole[-7:]),
        (SuffixByteRequest(size + 1), whole),
    ):
        assert get(store, key, part) == want, part
    with pytest.raises((ValueError, TypeError), match="Unexpected byte_range, got"):
        get(store, key, (0, 5))
    prototype = default_buffer_prototype()
    parts = run(store.get_partial_values(prototype, [(key, RangeByteRequest(0, 4)), ("no", None), (key, None)]))
    assert [p and p.to_bytes() for p in parts] == [whole[:4], None, whole]
    nothing = ("data/c/0/0/0/0/1", ".zgroup", "data", "", "data/", f"{key}/", "../data.raw", "./zarr.json", f"{key}/x")
    for missing in nothing:
        assert get(store, missing) is None and not run(store.exists(missing)), missing
    assert run(store.exists(key)) and run(store.exists("zarr.json"))
    with pytest.raises(FileNotFoundError):
        run(store.getsize("data/c/9"))


def test_the_store_lists_keys(b2nd: str) -> None:
    store = fzmfs.zarr_store(b2nd)
    keys = ["zarr.json", "data/zarr.json", "data/c/0/0/0/0/0"]
    assert sorted(run(listed(store.list()))) == sorted(keys)
    assert sorted(run(listed(store.list_prefix("data/")))) == sorted(keys[1:])
    assert run(listed(store.list_prefix("data/z"))) == ["data/zarr.json"]
    assert sorted(run(listed(store.list_dir("")))) == ["data", "zarr.json"]
    assert sorted(run(listed(store.list_dir("data/")))) == ["c", "zarr.json"]
    for missing in ("no", "zarr.json/", "data/c/0/0/0/0/0/0", "../chunks"):
        assert run(listed(store.list_dir(missing))) == [] == run(listed(store.list_prefix(f"{missing}/x")))
    assert not run(store.is_empty("data")) and run(store.is_empty("no"))
    # More names than fit in memory come one after the other.
    many = fzmfs.zarr_store(DATA / "blosc2/x09_fill_huge_zero.b2frame", dtype="u1", shape=2**31 - 1)

    async def first() -> str:
        async for key in many.list_prefix("data/c/"):
            return key
        raise AssertionError

    assert run(first()) == "data/c/0"


def test_the_store_is_read_only(b2nd: str) -> None:
    store = fzmfs.zarr_store(b2nd)
    assert not store.supports_writes and not store.supports_deletes and store.supports_listing
    for write in (store.set("x", default_buffer_prototype().buffer.from_bytes(b"")), store.delete("zarr.json")):
        with pytest.raises(ValueError, match="read-only"):
            run(write)
    assert store.with_read_only(True) == store
    assert store.with_read_only(True).read_only
    with pytest.raises(NotImplementedError):
        store.with_read_only(False)
    for write in (lambda: store.set_sync("x", None), lambda: store.delete_sync("zarr.json")):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(ValueError):
        zarr.open_group(store, mode="r+")["data"][0] = 1


def test_zarr_reads_without_an_event_loop_where_it_can(b2nd: str) -> None:
    store = fzmfs.zarr_store(b2nd)
    supports = getattr(zarr.abc.store, "_store_supports_sync_io", None)
    assert supports is None or supports(store)
    assert get(store, "zarr.json") == store.get_sync("zarr.json").to_bytes() and store.get_sync("none") is None


def test_stores_are_equal_if_they_show_the_same_and_pickle(b2nd: str, tmp_path: Path) -> None:
    store = fzmfs.zarr_store(b2nd)
    assert store == fzmfs.zarr_store(Path(b2nd)) == pickle.loads(pickle.dumps(store))
    assert store != fzmfs.zarr_store(b2nd, threads=1)
    assert str(store) == f"fzmfs://data.zarr::file://{b2nd}" and b2nd in repr(store)
    path = shutil.copy(b2nd, tmp_path / "x.b2nd")
    array = zarr.open_group(fzmfs.zarr_store(path), mode="r")["data"]
    copy = pickle.dumps(array)
    assert np.array_equal(pickle.loads(copy)[...], fzmfs.open(path)["data"][...])
    os.utime(path, ns=(1, 1))
    for use in (lambda: pickle.loads(copy), lambda: array[...]):
        with pytest.raises(fzmfs.Error) as caught:
            use()
        assert caught.value.kind == "changed"


def test_a_store_closes_what_it_has_opened(b2nd: str) -> None:
    with fzmfs.zarr_store(b2nd) as store:
        assert get(store, "zarr.json")
    assert store.archive.closed
    with pytest.raises(ValueError, match="closed"):
        get(store, "zarr.json")
    archive = fzmfs.open(b2nd)
    fzmfs.zarr_store(archive).close()
    assert archive["data"][0, 0, 0, 0, 0] is not None
    with pytest.raises(TypeError, match="open already"):
        fzmfs.zarr_store(archive, threads=1)


def test_a_broken_chunk_is_an_error_and_never_zeros(tmp_path: Path) -> None:
    data = made.frames(tmp_path / "x.zst", broken=7)
    array = zarr.open_group(fzmfs.zarr_store(tmp_path / "x.zst", **made.OPTIONS), mode="r")["data"]
    for part in (slice(None), slice(700, 800), slice(799, 801)):
        with pytest.raises(fzmfs.Error) as caught:
            array[part]
        assert caught.value.kind in ("corrupt", "checksum")
    rows = array.chunks[0]
    before, after = 700 // rows * rows, -(-800 // rows) * rows
    assert 0 < before and after < 1500
    assert np.array_equal(array[:before], data[:before]) and np.array_equal(array[after:], data[after:])


def test_a_source_that_is_gone_is_an_error_and_never_zeros(b2nd: str, tmp_path: Path) -> None:
    path = shutil.copy(b2nd, tmp_path / "x.b2nd")
    copy = pickle.dumps(zarr.open_group(fzmfs.zarr_store(path), mode="r")["data"])
    os.remove(path)
    with pytest.raises(fzmfs.Error):
        pickle.loads(copy)[...]
    # Of a sparse frame, the files of chunks; of zTensor, the shards.
    sparse = shutil.copytree(DATA / "blosc2/n22_sframe_b2nd.b2nd", tmp_path / "sparse.b2nd")
    array = zarr.open_group(fzmfs.zarr_store(sparse), mode="r")["data"]
    for chunk in sparse.glob("*.chunk"):
        chunk.unlink()
    with pytest.raises(fzmfs.Error):
        array[...]
    sharded = shutil.copytree(DATA / "ztensor/v20-sharded", tmp_path / "sharded")
    for shard in sharded.glob("model-*"):
        shard.unlink()
    group = zarr.open_group(fzmfs.zarr_store(sharded / "model.zt"), mode="r")
    # One is of a type that only some readers have.
    assert {name: made.outcome(lambda: array[...])[0] for name, array in group.arrays() if name != "x.l1.w"} == {
        "l0.b": "error",
        "l0.w": "error",
        "root.only": "read",
    }


def test_memory_is_used_again_only_when_nobody_has_a_view_of_it(tmp_path: Path) -> None:
    data = made.frames(tmp_path / "x.zst")
    store = fzmfs.zarr_store(tmp_path / "x.zst", **made.OPTIONS)
    spare = store._memory._spare
    rows = fzmfs.open(tmp_path / "x.zst", **made.OPTIONS)["data"].chunks[0]
    held = []
    for number in range(4):
        buffer = store.get_sync(f"data/c/{number}/0")
        held.append(memoryview(buffer.as_numpy_array().view("<f4").reshape(rows, -1)[1:3]))
        del buffer
        assert not spare
    for number, view in enumerate(held):
        start = number * rows
        assert np.array_equal(np.asarray(view), data[start + 1 : start + 3])
    del held, view
    gc.collect()
    assert len(spare) == 4
    memory = {id(each) for each in spare}
    whole = zarr.open_group(store, mode="r")["data"][...]
    assert np.array_equal(whole, data) and memory & {id(each) for each in spare} and len(spare) <= 12


def test_without_element_types_the_error_says_what_to_give(tmp_path: Path) -> None:
    made.frames(tmp_path / "x.zst")
    with pytest.raises(fzmfs.Error, match="give dtype=") as caught:
        fzmfs.zarr_store(tmp_path / "x.zst")
    assert caught.value.kind == "not_found"
    document = json.loads(fzmfs.open(tmp_path / "x.zst", dtype="u1").read("data.zarr/zarr.json"))
    assert document["consolidated_metadata"]["metadata"]["data"]["shape"] == [made.field().nbytes]
