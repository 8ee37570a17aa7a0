"""Packages that fzmfs works with but does not need."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, metadata

import pytest

OTHERS = ("zarr", "xarray", "fsspec", "dask", "distributed", "pandas", "torch", "safetensors", "ml_dtypes")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_fzmfs_alone_imports_none_of_them(b2nd: str) -> None:
    used = f"import fzmfs, sys; a = fzmfs.open({b2nd!r}); a['data'][0]; a['data'].chunks; a.info; a.files()"
    assert run(f"{used}; print([m for m in {OTHERS} if m in sys.modules])") == "[]\n"


@pytest.mark.parametrize("name", ["zarr", "numcodecs"])
def test_what_is_missing_is_named(name: str, b2nd: str) -> None:
    code = f"""
import sys
sys.modules[{name!r}] = None
import fzmfs
try:
    fzmfs.zarr_store({b2nd!r})
except ImportError as error:
    print(error)
"""
    assert run(code) == "fzmfs.zarr_store needs zarr-python 3.1.3 or later: pip install 'fzmfs[zarr]'\n"


@pytest.mark.parametrize(("package", "group"), [("xarray", "xarray.backends"), ("fsspec", "fsspec.specs")])
def test_the_other_packages_find_fzmfs_by_its_entry_points(package: str, group: str) -> None:
    pytest.importorskip(package)
    (entry,) = entry_points(group=group, name="fzmfs")
    assert entry.load().__module__.startswith("fzmfs.")


def test_the_extras_that_the_readme_names_are_there() -> None:
    extras = metadata("fzmfs").get_all("Provides-Extra")
    assert {"zarr", "xarray", "fsspec", "dask", "types", "all"} <= set(extras)
