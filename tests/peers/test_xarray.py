"""xarray's tests of its backends, on what they write where fzmfs reads it: variables encoded by the CF conventions in a store
of Blosc2 for the engine fzmfs, and their own Zarr stores in an archive for the file system.
"""

from __future__ import annotations

import contextlib
import subprocess
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blosc2
import fsspec
import numpy as np
import pytest
import xarray
from xarray import conventions
from xarray.tests import test_backends as theirs
from zarr.storage import FsspecStore

# What fzmfs says of a container among the attributes of its group.
OWN = ("container", "left_out", "not_consolidated")
# Where the test keeps the attributes of the dataset, for which a store of Blosc2 has no place.
GLOBAL = "-dataset-"
# Cases that fail, by the beginnings of their names, and why that is right.
FLOAT = "a scale is a number of JSON, which has 64 bits: xarray's tests of Zarr leave it out too"
DIFFERENT = {
    "test_roundtrip_string_encoded_characters": "_Encoding is a key of netCDF",
    **{f"test_roundtrip_mask_and_scale[dtype1-create_{kind}masked": FLOAT for kind in ("", "signed_", "unsigned_")},
}


def packed(path: Path) -> Path:
    """The file or folder `path` in an archive in Zstandard."""
    with tarfile.open(f"{path}.tar", "w") as tar:
        tar.add(path, "it")
    subprocess.run(["zstd", "-qf", f"{path}.tar"], check=True)
    return Path(f"{path}.tar.zst")


def inside(archive: Path) -> Any:
    return fsspec.filesystem("fzmfs", fo=archive), f"{archive.name.removesuffix('.zst')}/it"


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


class Reading:
    """What their classes need to write and to open; what they write otherwise is not read by fzmfs."""

    @contextlib.contextmanager
    def create_store(self) -> Iterator[Any]:
        pytest.skip("it writes through a store of xarray")
        yield

    @contextlib.contextmanager
    def roundtrip_append(self, *_: Any, **__: Any) -> Iterator[Any]:
        pytest.skip("it appends")
        yield


class TestEngine(Reading, theirs.CFEncodedBase):
    """The engine fzmfs: each variable is an array in a store of Blosc2, with its dimensions and attributes."""

    engine = "fzmfs"  # type: ignore[assignment]

    @pytest.fixture(autouse=True)
    def known(self, request: pytest.FixtureRequest) -> None:
        for part, why in DIFFERENT.items():
            if request.node.name.startswith(part):
                request.applymarker(pytest.mark.xfail(reason=why, strict=True))

    def save(self, dataset: xarray.Dataset, path: str, **options: Any) -> None:
        if options:
            pytest.skip(f"it writes with {', '.join(options)}")
        variables, attributes = conventions.cf_encoder(*conventions.encode_dataset_coordinates(dataset))
        with blosc2.TreeStore(f"{path}.b2z", mode="w") as store:
            for name, variable in variables.items():
                values = np.asarray(variable.values)
                if not isinstance(name, str) or values.dtype.kind in "OT":
                    pytest.skip(f"Blosc2 has no array {name!r} of {values.dtype}")
                array = blosc2.asarray(np.ascontiguousarray(values).reshape(values.shape))
                array.schunk.vlmeta["dims"] = list(variable.dims)
                array.schunk.vlmeta["attrs"] = {key: plain(value) for key, value in variable.attrs.items()}
                store[f"/{name}"] = array
            array = blosc2.asarray(np.zeros(1, "u1"))
            array.schunk.vlmeta["attrs"] = {key: plain(value) for key, value in attributes.items()}
            store[f"/{GLOBAL}"] = array

    @contextlib.contextmanager
    def open(self, path: str, **options: Any) -> Iterator[xarray.Dataset]:
        dropped = [GLOBAL, *np.atleast_1d(options.pop("drop_variables", None) or [])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            about = xarray.open_dataset(f"{path}.b2z", engine="fzmfs", decode_cf=False)[GLOBAL].attrs
            found = xarray.open_dataset(f"{path}.b2z", engine="fzmfs", drop_variables=dropped, **options)
        with found:
            kept = {key: value for key, value in found.attrs.items() if key not in OWN}
            coordinates = about.pop("coordinates", "").split() if options.get("decode_coords", True) else []
            found = found.set_coords([name for name in coordinates if name in found])
            found.attrs = {**kept, **about}
            yield found


class TestZarrInAnArchive(theirs.ZarrBase):
    """Their Zarr stores, read by zarr-python through the file system fzmfs."""

    @contextlib.contextmanager
    def create_zarr_target(self) -> Iterator[str]:
        with theirs.create_tmp_file(suffix=".zarr") as path:
            yield path

    @contextlib.contextmanager
    def open(self, path: Any, **options: Any) -> Iterator[xarray.Dataset]:
        if not isinstance(path, str):
            pytest.skip("no folder to pack")
        files, name = inside(packed(Path(path)))
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        store = FsspecStore(AsyncFileSystemWrapper(files, asynchronous=True), read_only=True, path=name)
        with xarray.open_dataset(store, engine="zarr", mode="r", **options, **self.version_kwargs) as found:
            yield found
