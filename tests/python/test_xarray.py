"""The engine `fzmfs` of xarray: values, dimensions, chunks, attributes, groups, errors."""

from __future__ import annotations

import asyncio
import pickle
import warnings
from pathlib import Path

import made
import numpy as np
import pytest
import xarray
from conftest import DATA

import fzmfs


def opened(source: object, **options: object) -> xarray.Dataset:
    return xarray.open_dataset(source, engine="fzmfs", **options)


def test_every_array_of_the_corpora_is_what_the_archive_reads() -> None:
    counts = {"read": 0, "error": 0, "left out": 0}
    for path, archive in made.corpus():
        with warnings.catch_warnings():
            # Of arrays that are left out, and of types that have no specification yet.
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("ignore", FutureWarning)
            try:
                tree = xarray.open_groups(archive, engine="fzmfs", decode_cf=False)
            except (fzmfs.Error, ValueError):
                continue
        # Names in a tree of groups are escaped, and those that collide have numbers.
        left_out = len({**tree["/"].attrs["left_out"], **tree["/"].attrs["not_consolidated"]})
        seen = 0
        for group, dataset in tree.items():
            for variable, values in dataset.variables.items():
                seen += 1
                name = f"{group}/{variable}".strip("/")
                name = name if name in archive else f"{name}/data"
                if name not in archive or values.nbytes > 1 << 24:
                    continue
                try:
                    array = archive[name]
                except fzmfs.Error:
                    continue
                assert values.shape == array.shape and values.dtype == array.dtype, (path, name)
                assert values.attrs == array.attrs or "_FillValue" in array.attrs, (path, name)
                found = made.outcome(lambda: values.values)
                assert found == made.outcome(lambda: archive[name][...]), (path, name)
                counts[found[0]] += 1
        counts["left out"] += left_out
        dense = [name for name in archive if not name.startswith("frames/") or name.endswith("/data")]
        # Of a table, there are its columns.
        dense = [name for name in dense if "stored" not in name.split("/")]
        assert seen + left_out >= len(dense) or path.suffix == ".zt", (path, seen, left_out, list(archive))
    assert counts["read"] > 400 and counts["error"] > 10, counts


def test_a_variable_is_read_where_it_is_indexed(tmp_path: Path) -> None:
    # The broken part is not between the indices that are read.
    data = made.frames(tmp_path / "x.zst", broken=7)
    field = opened(tmp_path / "x.zst", options=made.OPTIONS)["data"]
    assert field.shape == data.shape and field.dims == ("dim_0", "dim_1") and not field.variable._in_memory
    rows, columns = [1400, 3, -1, 5, 5, 100], [9, 2, -1, 2]
    for index, want in (
        ((rows, columns), data[np.ix_(rows, columns)]),
        ((rows, slice(None, None, -5)), data[rows, ::-5]),
        ((slice(1000, None), columns), data[1000:, columns]),
        ((rows, 7), data[rows, 7]),
        ((3, columns), data[3, columns]),
        (([], columns), data[[]][:, columns]),
        ((slice(1500, 900, -1), slice(5)), data[1500:900:-1, :5]),
        ((slice(None, None, -600), 5), data[::-600, 5]),
    ):
        found = field[index].values
        assert found.shape == want.shape and np.array_equal(found, want), index
    points = xarray.DataArray([1, 1300, 1], dims="point")
    assert np.array_equal(field.isel(dim_0=points, dim_1=points).values, data[[1, 1300, 1], [1, 1300, 1]])
    with pytest.raises(IndexError):
        field[[1500]].load()
    assert float(field[0, 0]) == data[0, 0] and field[0, 0].values.shape == ()
    if hasattr(field, "load_async"):
        assert np.array_equal(asyncio.run(field[:3].load_async()).values, data[:3])
    with pytest.raises(fzmfs.Error):
        field[750].load()
    assert np.array_equal(field[:600].values, data[:600])


def test_chunks_are_those_of_the_array_and_dask_computes_with_them(tmp_path: Path) -> None:
    data = made.frames(tmp_path / "x.zst")
    chunks = fzmfs.open(tmp_path / "x.zst", **made.OPTIONS)["data"].chunks
    dataset = opened(tmp_path / "x.zst", options=made.OPTIONS, chunks={})
    field = dataset["data"]
    assert dict(zip(field.dims, chunks)) == field.encoding["preferred_chunks"]
    assert [sizes[0] for sizes in field.data.chunks] == list(chunks) and field.data.npartitions > 2
    assert np.array_equal(field.compute(), data)
    assert float(field.max()) == data.max() and np.array_equal((field * 2)[5:9].compute(), data[5:9] * 2)
    copy = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(copy["data"][:50], data[:50])
    assert opened(tmp_path / "x.zst", options=made.OPTIONS, chunks={})["data"].data.name == field.data.name
    assert opened(tmp_path / "x.zst", options=made.OPTIONS, chunks="auto")["data"].data.npartitions == 1


def test_dimensions_and_attributes_are_those_of_the_container(b2nd: str) -> None:
    dataset = opened(b2nd)
    assert dataset["data"].dims == ("dim_0", "dim_1", "dim_2", "dim_3", "dim_4") and dataset["data"].attrs == {}
    assert dataset.attrs["container"]["format"] == "blosc2" and dataset.attrs["left_out"] == {}
    assert dataset.encoding["source"] == b2nd
    layers = opened(DATA / "blosc2/m01_meta_vlmeta.b2frame")["data"].attrs
    assert layers["author"] == {"name": "nobody", "n": 3} and layers["num"] == 12345
    assert layers["list"] == [1, 2.5, None, True, "x"] and "b2nd" not in layers
    assert opened(DATA / "fzm/lq3d_f32_zz_bitpack.fzm")["data"].dims == ("z", "y", "x")


def test_arrays_with_slashes_in_their_names_are_in_groups() -> None:
    path = DATA / "fzm/lq1d_f32_noa_rle.fzm"
    archive = fzmfs.open(path)
    assert list(opened(path).data_vars) == ["data"]
    buffers = opened(path, group="/buffers")
    assert {f"buffers/{name}" for name in buffers.data_vars} == set(archive) - {"data"} and buffers.attrs == {}
    assert np.array_equal(buffers["output"], archive["buffers/output"][...])
    tree = xarray.open_datatree(path, engine="fzmfs")
    assert tree.groups == ("/", "/buffers") and tree["buffers/output"].identical(buffers["output"])
    assert xarray.open_datatree(path, engine="fzmfs", group="buffers")["output"].identical(buffers["output"])
    with pytest.raises(ValueError, match="no group 'buffer'"):
        opened(path, group="buffer")
    members = xarray.open_datatree(DATA / "blosc2/archive.b2z", engine="fzmfs")
    assert members["numbers"].dims == ("size_40", "size_50") and members["group/ones"].values.all()
    # Names that are also those of groups, and names of dots.
    odd = DATA / "ztensor/v12-names.zt"
    groups = xarray.open_groups(odd, engine="fzmfs").values()
    assert sum(len(group.data_vars) for group in groups) == len(fzmfs.open(odd))


def test_names_of_files_are_known_and_open_archives_are_taken(b2nd: str) -> None:
    if "blosc2" not in xarray.backends.list_engines():
        assert xarray.open_dataset(b2nd)["data"].shape == (5, 4, 6, 3, 7)
    archive = fzmfs.open(b2nd)
    with opened(archive) as dataset:
        assert dataset["data"].shape == (5, 4, 6, 3, 7)
    assert archive["data"][0].any()
    dataset = opened(Path(b2nd))
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset["data"].load()


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(fzmfs.Error) as caught:
        opened(DATA / "fzm/bad/header_crc.fzm")
    assert caught.value.kind == "checksum"
    made.frames(tmp_path / "x.zst")
    with pytest.raises(ValueError, match="no arrays; for bytes give"):
        opened(tmp_path / "x.zst")
    with pytest.raises(TypeError):
        opened(tmp_path / "x.zst", options={"no": 1})


def test_an_array_that_cannot_be_opened_is_left_out_with_a_warning() -> None:
    path = DATA / "ztensor/bad/bad-01-endian.zt"
    with pytest.warns(UserWarning, match="is unknown to fzmfs"):
        dataset = opened(path)
    assert len(dataset.attrs["left_out"]) == 1


def test_what_is_no_array_is_named_and_variables_have_the_order_of_the_archive() -> None:
    path = DATA / "ztensor/v12-sparse-index-dtypes.zt"
    with fzmfs.open(path) as archive, pytest.warns(UserWarning, match="its components are files"):
        dataset = opened(archive)
        assert dataset.attrs["left_out"]
        for name, why in dataset.attrs["left_out"].items():
            with pytest.raises(KeyError, match="is not an array here: it has the layout"):
                archive[name]
            assert "layout" in why
    # With a type that zarr-python has from ml_dtypes, members are listed, which gives them in any order.
    with fzmfs.open(DATA / "ztensor/v12-all-dtypes.zt") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = opened(archive)
        assert list(dataset.data_vars) == [name for name in archive if name in dataset.data_vars]
        assert list(xarray.open_datatree(archive, engine="fzmfs").data_vars) == list(dataset.data_vars)


def test_conventions_are_decoded_and_everything_can_be_written_as_zarr(tmp_path: Path) -> None:
    pytest.importorskip("zarr", "3", reason="no zarr-python 3 for this Python")
    data = made.frames(tmp_path / "x.zst")
    dataset = opened(tmp_path / "x.zst", options=made.OPTIONS, chunks={})
    dataset.to_zarr(tmp_path / "copy.zarr", consolidated=False, zarr_format=3)
    assert np.array_equal(xarray.open_zarr(tmp_path / "copy.zarr", consolidated=False)["data"], data)


def test_attributes_of_the_conventions_are_decoded(tmp_path: Path) -> None:
    blosc2 = pytest.importorskip("blosc2")
    data = np.arange(12, dtype="f4").reshape(3, 4)
    array = blosc2.asarray(data, urlpath=str(tmp_path / "x.b2nd"), mode="w")
    said = {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": 0.0, "units": "K", "history": ("made", {"by": [1, None]})}
    for name, value in said.items():
        array.schunk.vlmeta[name] = value
    assert fzmfs.open(tmp_path / "x.b2nd")["data"].attrs == {**said, "history": ["made", {"by": [1, None]}]}
    decoded = opened(tmp_path / "x.b2nd")["data"]
    assert decoded.attrs == {"units": "K", "history": ["made", {"by": [1, None]}]}
    assert np.allclose(decoded, np.where(data == 0, np.nan, data * 0.5 + 1), equal_nan=True)
    plain = opened(tmp_path / "x.b2nd", mask_and_scale=False)["data"]
    assert np.array_equal(plain, data) and plain.attrs["_FillValue"] == 0.0
