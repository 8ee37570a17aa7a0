"""The distances of elements in what other programs read: NRRD, MetaImage, OME-Zarr."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import DATA

import fzmfs

pytestmark = pytest.mark.skipif("FZMFS_PROGRAM" not in os.environ, reason="FZMFS_PROGRAM, which scripts/python sets, names no program")
FZMFS = os.environ.get("FZMFS_PROGRAM", "fzmfs")
FIELD = DATA / "fzm/lq3d_f32_zz_bitpack.fzm"
GIVEN = ["-o", "spacing=2.5x1x0.5,units=um"]


def extracted(source: Path, into: Path, *options: str) -> Path:
    subprocess.run([FZMFS, "extract", *options, source, into, "data.raw", "data.npy", "data.nhdr", "data.mhd"], check=True)
    return into


def test_headers_have_the_distances_that_the_user_gives(tmp_path: Path) -> None:
    folder = extracted(FIELD, tmp_path / "x", *GIVEN)
    want = np.load(folder / "data.npy")
    nrrd = pytest.importorskip("nrrd", reason="pynrrd is not installed")
    data, header = nrrd.read(str(folder / "data.nhdr"), index_order="C")
    assert np.array_equal(data, want) and list(header["spacings"]) == [0.5, 1, 2.5] and header["units"] == ["um"] * 3
    itk = pytest.importorskip("SimpleITK", reason="SimpleITK is not installed")
    for name in ("data.nhdr", "data.mhd"):
        image = itk.ReadImage(str(folder / name))
        assert image.GetSpacing() == (0.5, 1, 2.5) and np.array_equal(itk.GetArrayFromImage(image), want), name


def test_a_group_is_an_image_of_ome_zarr() -> None:
    archive = fzmfs.open(FIELD, spacing=(2.5, 1, 0.5), units="um")
    group = zarr.open_group(fzmfs.zarr_store(archive))
    image = group.attrs["ome"]["multiscales"][0]
    assert group.attrs["ome"]["version"] == "0.5"
    assert [(axis["name"], axis["type"], axis["unit"]) for axis in image["axes"]] == [(n, "space", "micrometer") for n in "zyx"]
    (level,) = image["datasets"]
    assert level == {"path": "data", "coordinateTransformations": [{"type": "scale", "scale": [2.5, 1, 0.5]}]}
    assert tuple(axis["name"] for axis in image["axes"]) == group["data"].metadata.dimension_names
    assert "ome" not in zarr.open_group(fzmfs.zarr_store(FIELD)).attrs


def test_mlarray_says_where_its_arrays_are(tmp_path: Path) -> None:
    mlarray = pytest.importorskip("mlarray", reason="mlarray is not installed")
    data = np.arange(24, dtype="f4").reshape(2, 3, 4)
    path = tmp_path / "x.mla"
    mlarray.MLArray(data, spacing=[2.5, 1, 0.5], origin=[1, 2, 3], meta={"patient": "p", "nan": float("nan")}).save(str(path))
    own = mlarray.MLArray(str(path))
    attrs = fzmfs.open(path)["data"].attrs
    assert attrs["spatial"]["spacing"] == list(own.spacing) and attrs["spatial"]["origin"] == list(own.origin)
    assert attrs["source"]["data"] == {"patient": "p", "nan": "NaN"}
    group = zarr.open_group(fzmfs.zarr_store(path))
    scale, translation = group.attrs["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]
    assert (scale["scale"], translation["translation"]) == ([2.5, 1, 0.5], [1, 2, 3])
    folder = extracted(path, tmp_path / "out")
    itk = pytest.importorskip("SimpleITK", reason="SimpleITK is not installed")
    for name in ("data.nhdr", "data.mhd"):
        image = itk.ReadImage(str(folder / name))
        assert (image.GetSpacing(), image.GetOrigin()) == ((0.5, 1, 2.5), (3, 2, 1)), name
        assert np.array_equal(itk.GetArrayFromImage(image), data), name


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    run = subprocess.run([FZMFS, "info", "--json", "-o", "spacing=2x2", FIELD], capture_output=True, text=True, check=True)
    assert "spacing= has no effect: it needs a distance for each dimension of an array, and the container has none of as many" in run.stderr
    assert "space" not in json.loads(run.stdout)
    run = subprocess.run([FZMFS, "info", "-o", "spacing=0", FIELD], capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "expected a positive distance" in run.stderr
    with pytest.raises(ValueError, match="spacing: expected a positive distance"):
        fzmfs.open(FIELD, spacing=-1)
