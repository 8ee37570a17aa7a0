"""Dask: arrays without a mount, on threads and in other processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import dask
import dask.array
import distributed
import made
import numpy as np
import pytest
import xarray
import zarr
from dask.base import tokenize

import fzmfs


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("dask") / "x.zst"
    return path, made.frames(path)


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def doors(path: Path) -> dict[str, object]:
    """The same array as each door gives it to Dask."""
    array = fzmfs.open(path, **made.OPTIONS)["data"]
    group = zarr.open_group(fzmfs.zarr_store(path, **made.OPTIONS), mode="r")
    dataset = xarray.open_dataset(path, engine="fzmfs", options=made.OPTIONS, chunks={})
    return {
        "from_array": dask.array.from_array(array),
        "zarr_store": dask.array.from_zarr(group["data"]),
        "xarray": dataset["data"].data,
    }


def test_dask_chooses_chunks_of_the_array(file: tuple[Path, np.ndarray]) -> None:
    path, data = file
    array = fzmfs.open(path, **made.OPTIONS)["data"]
    # Some chunks of the container at a time, as many as fit in Dask's own size of chunks.
    with dask.config.set({"array.chunk-size": "8MiB"}):
        lazy = dask.array.from_array(array)
    assert lazy.npartitions > 1 and lazy.chunks[0][0] % array.chunks[0] == 0 and lazy.dtype == array.dtype
    assert np.array_equal(lazy.compute(), data)
    lazy = dask.array.from_array(array, chunks=array.chunks)
    assert lazy.npartitions > 2
    for scheduler in ("synchronous", "threads"):
        assert np.array_equal(lazy.compute(scheduler=scheduler), data)
    # Dask passes indices on where it can.
    for index in ([3, 1400, 7], np.arange(1500) % 7 == 0, slice(None, None, -3)):
        assert np.array_equal(lazy[index].compute(), data[index])
    assert np.array_equal(lazy[:, [1, 2000]][::7].compute(), data[:, [1, 2000]][::7])
    assert np.array_equal(lazy[lazy > 100].compute(), data[data > 100])
    assert np.array_equal(lazy[5, ::2].compute(), data[5, ::2])
    assert float(lazy.max().compute()) == data.max()


def test_names_follow_from_the_version_of_the_source(file: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path = shutil.copy(file[0], tmp_path / "x.zst")
    archive = fzmfs.open(path, **made.OPTIONS)
    token = tokenize(archive["data"])
    again = fzmfs.open(path, **made.OPTIONS)
    assert token == tokenize(again["data"]) == tokenize(pickle.loads(pickle.dumps(again["data"])))
    assert tokenize(archive) == tokenize(again) != tokenize(fzmfs.open(path, dtype="<i4"))
    stores = [fzmfs.zarr_store(archive), fzmfs.zarr_store(again)]
    assert tokenize(stores[0]) == tokenize(stores[1])
    os.utime(path, ns=(1, 1))
    assert token != tokenize(fzmfs.open(path, **made.OPTIONS)["data"])


@pytest.mark.parametrize("door", ["from_array", "zarr_store", "xarray"])
def test_a_cluster_of_processes_computes_with_each_door(
    door: str, file: tuple[Path, np.ndarray], client: distributed.Client
) -> None:
    path, data = file
    lazy = doors(path)[door].rechunk((250, 2003))
    assert np.array_equal(client.compute(lazy).result(), data)
    workers = set(client.nthreads())
    assert len(workers) == 2
    # Each of them reads.
    for worker in workers:
        assert np.array_equal(client.compute(lazy[:250], workers=[worker]).result(), data[:250])


def test_an_error_in_a_worker_comes_back_as_itself(tmp_path: Path, client: distributed.Client) -> None:
    made.frames(tmp_path / "x.zst", broken=7)
    for door, lazy in doors(tmp_path / "x.zst").items():
        with pytest.raises(fzmfs.Error) as caught:
            client.compute(lazy).result()
        assert caught.value.kind in ("corrupt", "checksum") and caught.value.filename == str(tmp_path / "x.zst"), door


def test_a_source_that_changes_before_a_worker_opens_it_is_an_error(
    file: tuple[Path, np.ndarray], tmp_path: Path, client: distributed.Client
) -> None:
    path = shutil.copy(file[0], tmp_path / "x.zst")
    lazy = doors(path)["from_array"]
    os.utime(path, ns=(1, 1))
    with pytest.raises(Exception) as caught:
        client.compute(lazy).result()
    assert "changed" in f"{caught.value} {caught.value.__cause__}"


def total(array: object, start: int) -> float:
    return float(np.asarray(array[start : start + 100]).sum())


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_pools_of_processes_take_every_door(method: str, file: tuple[Path, np.ndarray]) -> None:
    path, data = file
    want = [float(data[start : start + 100].sum()) for start in range(0, 1500, 300)]
    group = zarr.open_group(fzmfs.zarr_store(path, **made.OPTIONS), mode="r")
    variable = xarray.open_dataset(path, engine="fzmfs", options=made.OPTIONS)["data"]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        for array in (fzmfs.open(path, **made.OPTIONS)["data"], group["data"], variable):
            assert list(pool.map(total, [array] * 5, range(0, 1500, 300))) == want, type(array)
