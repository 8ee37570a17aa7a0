"""Directories of containers: mappings that open what is taken, trees and datasets of xarray."""

from __future__ import annotations

import errno
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA

import fzmfs


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    (folder / "more").mkdir(parents=True)
    shutil.copy(DATA / "fzm/lq3d_f32_zz_bitpack.fzm", folder / "a.fzm")
    shutil.copy(DATA / "fzm/bad/header_crc.fzm", folder / "broken.fzm")
    shutil.copy(DATA / "blosc2/n05_5d_f4.b2nd", folder / "more" / "b.b2nd")
    shutil.copytree(DATA / "blosc2/n22_sframe_b2nd.b2nd", folder / "sparse.b2nd")
    (folder / "notes.txt").write_text("no container")
    return folder


def test_a_directory_is_a_mapping_that_opens_what_is_taken(runs: Path) -> None:
    with fzmfs.open(runs) as directory:
        assert list(directory) == ["a.fzm", "broken.fzm", "more", "sparse.b2nd"] and len(directory) == 4
        assert "notes.txt" not in directory and "2 directories" not in repr(directory)
        assert np.array_equal(directory["a.fzm"]["data"], fzmfs.open(runs / "a.fzm")["data"])
        assert directory["a.fzm"] is directory["a.fzm"]
        assert list(directory["more"]) == ["b.b2nd"] and directory["more/b.b2nd"]["data"].shape == (5, 4, 6, 3, 7)
        assert directory["sparse.b2nd"]["data"].shape
        with pytest.raises(fzmfs.Error):
            directory["broken.fzm"]
        for name in ("b.fzm", "notes.txt", "", "..", "more/none"):
            with pytest.raises(KeyError):
                directory[name]
        copy = pickle.loads(pickle.dumps(directory))
        assert list(copy) == list(directory)
        archive = directory["a.fzm"]
    assert archive.closed and directory.closed
    with pytest.raises(ValueError, match="closed"):
        directory["a.fzm"]


def test_what_takes_one_container_says_that_a_directory_is_none(runs: Path) -> None:
    zarr = pytest.importorskip("zarr", "3")
    assert zarr
    with pytest.raises(fzmfs.Error, match="open those in it") as caught:
        fzmfs.zarr_store(runs)
    assert caught.value.errno == errno.EISDIR


def test_a_directory_is_a_tree_of_xarray(runs: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", "3")
    with pytest.warns(UserWarning, match="broken.fzm"):
        tree = xarray.open_datatree(runs, engine="fzmfs")
    assert {"/a.fzm", "/a.fzm/buffers", "/more/b.b2nd", "/sparse.b2nd"} <= set(tree.groups)
    assert np.array_equal(tree["more/b.b2nd/data"], fzmfs.open(runs / "more/b.b2nd")["data"])
    assert np.array_equal(
        xarray.open_dataset(runs, engine="fzmfs", group="more/b.b2nd")["data"], fzmfs.open(runs / "more/b.b2nd")["data"]
    )


def test_what_xarray_blosc2_wrote_is_what_its_own_reader_gives(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr", "3")
    writer = pytest.importorskip("xarray_blosc2", reason="xarray-blosc2 is not installed")
    said = {"units": "K", "long_name": "temperature", "history": "made", "range": [1, 2.5], "nan": float("nan"), "_FillValue": -1.0}
    field = xarray.Dataset(
        {
            "t": (("time", "lat", "lon"), np.arange(24, dtype="f4").reshape(2, 3, 4), said),
            "n": ("lat", np.arange(3), {"flag": True}),
        },
        {
            "time": np.array(["2026-01-01", "2026-01-02"], "M8[ns]"),
            "lat": ("lat", [1.0, 2, 3], {"units": "degrees_north"}),
            "lon": [1.0, 2, 3, 4],
            "name": ("lat", ["a", "bc", "d"]),
            "scalar": 7.0,
        },
        {"title": "x", "nested": {"a": [1, None]}},
    )
    writer.save_dataset(field, str(tmp_path / "field"))
    for path in (tmp_path / "field", f"{tmp_path / 'field'}/"):
        found = xarray.open_dataset(path, engine="fzmfs")
        assert not found["t"].variable._in_memory
        xarray.testing.assert_identical(found, writer.open(str(tmp_path / "field")))
    # Without the description of all, which older versions did not write.
    (tmp_path / "field/dataset.json").unlink()
    found = xarray.open_dataset(tmp_path / "field", engine="fzmfs")
    xarray.testing.assert_identical(found, writer.open(str(tmp_path / "field")))
    # By itself, an array has its dimensions and attributes too.
    alone = xarray.open_dataset(tmp_path / "field/t.b2nd", engine="fzmfs", decode_cf=False)["data"]
    assert alone.dims == ("time", "lat", "lon") and {**alone.attrs, "nan": 0} == {**found["t"].attrs, "nan": 0}
    with pytest.raises(ValueError, match="open_datatree"):
        xarray.open_dataset(DATA / "fzm", engine="fzmfs")
