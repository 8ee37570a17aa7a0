"""Tables of python-blosc2: columns as arrays, and table.arrow as programs read it from a mount."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA

import fzmfs

STORES = DATA / "blosc2/stores"
# What python-blosc2 gives for a table, and the group of it.
TABLES = [("masked", "tables.b2z", "runs/masked"), ("valued", "tables.b2z", "valued")]
EXPORTED = [*TABLES, ("nested", "nested_tables.b2z", "nested"), ("imported", "nested_tables.b2z", "imported/msgpack")]


@pytest.mark.parametrize(("name", "file", "group"), TABLES)
def test_columns_are_arrays_of_the_live_rows(name: str, file: str, group: str) -> None:
    count = 0
    with fzmfs.open(STORES / file) as archive:
        for own in sorted((STORES / "tables" / name).glob("*.npy")):
            want, key = np.load(own), f"{group}/columns/{own.name.removesuffix('.npy')}"
            if key not in archive:
                # Text of any length is not an array there, but a file.
                assert want.dtype.kind == "U"
                text = np.load(io.BytesIO(archive.read(f"{group}/columns/{own.name}")))
                assert np.array_equal(text, want), key
                continue
            got = archive[key]
            assert (got.dtype, got.shape) == (want.dtype, want.shape), key
            assert np.array_equal(got[...], want, equal_nan=want.dtype.kind in "fM"), key
            assert np.array_equal(got[3:-2:4], want[3:-2:4], equal_nan=want.dtype.kind in "fM"), key
            count += 1
        assert count > 10
        marked = "score" if name == "masked" else "f"
        assert archive[f"{group}/columns/{marked}"].attrs["notnull"] == f"{marked}.notnull"


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The stores, as a mount shows them."""
    program, point = os.environ.get("FZMFS_PROGRAM"), tmp_path_factory.mktemp("stores")
    if program is None or not Path("/dev/fuse").exists():
        pytest.skip("nothing can be mounted here")
    subprocess.run([program, "mount", str(STORES), str(point)], check=True, timeout=60)
    yield point
    subprocess.run([program, "umount", str(point)], check=True, timeout=60)


def own(name: str) -> Any:
    """The table that python-blosc2 exported."""
    arrow = pytest.importorskip("pyarrow")
    with arrow.ipc.open_file(STORES / "tables" / f"{name}.arrow") as file:
        return file.read_all()


@pytest.mark.parametrize(("name", "file", "group"), EXPORTED)
def test_pyarrow_opens_a_table_from_a_mount(mounted: Path, name: str, file: str, group: str) -> None:
    want = own(name)
    arrow = pytest.importorskip("pyarrow")
    with arrow.memory_map(str(mounted / file / group / "table.arrow")) as mapped:
        got = arrow.ipc.open_file(mapped).read_all()
        got.validate(full=True)
        assert got.equals(want)
        del got


@pytest.mark.parametrize(("name", "file", "group"), EXPORTED)
def test_polars_opens_a_table_from_a_mount(mounted: Path, name: str, file: str, group: str) -> None:
    polars = pytest.importorskip("polars")
    want = own(name)
    got = polars.read_ipc(mounted / file / group / "table.arrow")
    assert got.columns == want.column_names and got.height == want.num_rows
    assert got.equals(polars.from_arrow(want))


@pytest.mark.parametrize(("name", "file", "group"), EXPORTED)
def test_duckdb_queries_a_table_from_a_mount(mounted: Path, name: str, file: str, group: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    want = own(name)
    arrow = pytest.importorskip("pyarrow")
    with arrow.memory_map(str(mounted / file / group / "table.arrow")) as mapped:
        shown = arrow.ipc.open_file(mapped).read_all()
        first = shown.column_names[0]
        [rows] = duckdb.sql(f"select count(*), count({first}) from shown").fetchall()
        assert rows == (want.num_rows, want.num_rows - want[first].null_count)
        ours = duckdb.sql(f"select * from shown order by {first}").fetchall()
        theirs = duckdb.sql(f"select * from want order by {first}").fetchall()
        assert repr(ours) == repr(theirs)
        del shown
