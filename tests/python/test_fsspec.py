"""The protocol `fzmfs` of fsspec: files of containers, alone and in chains."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import threading
from datetime import datetime, timezone
from pathlib import Path

import fsspec
import made
import numpy as np
import pandas
import pytest
from conftest import DATA, manifest, sha256
from numcodecs.zstd import Zstd

import fzmfs


def test_a_chain_opens_the_bytes_of_the_manifest() -> None:
    count = 0
    for case in manifest("fzm", "cases"):
        if case["compare"] == "exact" and case.get("defined_bytes") is None:
            with fsspec.open(f"fzmfs://data.raw::file://{DATA}/fzm/{case['file']}") as file:
                assert sha256(file.read()) == case["out_sha256"], case["file"]
            count += 1
    for case in manifest("zstd", "files"):
        if (DATA / "zstd" / case["file"]).exists() and "dict" not in case["file"]:
            fs = fsspec.filesystem("fzmfs", fo=DATA / "zstd" / case["file"])
            assert sha256(fs.cat_file("data.raw")) == case["content_sha256"], case["file"]
            count += 1
    assert count > 40, count


def test_entries_are_those_of_the_archive(b2nd: str) -> None:
    fs = fsspec.filesystem("fzmfs", fo=b2nd)
    archive = fzmfs.open(b2nd)
    assert fs.ls("", detail=False) == [entry.path for entry in archive.files(recursive=False)]
    assert sorted(fs.find("")) == sorted(entry.path for entry in archive.files() if entry.kind != "directory")
    assert fs.info("data.raw") == {"name": "data.raw", "size": 10080, "type": "file"}
    assert fs.info("/chunks/")["type"] == fs.info("")["type"] == "directory"
    assert fs.isdir("chunks") and fs.isfile("data.npy")
    assert fs.ls("data.raw") == [fs.info("fzmfs://data.raw")] and fs.size("data.npy") == 10208
    assert fs.glob("chunks/00000[12].raw") == ["chunks/000001.raw", "chunks/000002.raw"]
    assert fs.exists("info.json") and not fs.exists("info.jsom")
    for use in (fs.info, fs.ls, fs.cat_file, fs.open):
        with pytest.raises(FileNotFoundError):
            use("data.rew")
    with pytest.raises(IsADirectoryError):
        fs.cat_file("chunks")


def test_sizes_that_only_decoding_tells_are_found_where_they_are_asked_for() -> None:
    fs = fsspec.filesystem("fzmfs", fo=DATA / "zstd/v07-nosize-nocheck.zst")
    listed = {info["name"]: info for info in fs.ls("")}
    assert listed["data.raw"]["size"] is None and fs.info("data.raw")["size"] == len(fs.cat_file("data.raw"))
    link = listed["v07-nosize-nocheck"]
    assert link["islink"] and link["type"] == "file"
    assert fs.info(link["name"])["size"] == fs.info("data.raw")["size"] and fs.cat(link["name"]) == fs.cat("data.raw")


def test_files_are_as_old_as_the_container(b2nd: str, tmp_path: Path) -> None:
    path = shutil.copy(b2nd, tmp_path / "x.b2nd")
    os.utime(path, (1, 1_700_000_000.25))
    fs = fsspec.filesystem("fzmfs", fo=path)
    assert fs.modified("data.raw") == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=timezone.utc)
    with pytest.raises(FileNotFoundError):
        fs.modified("data.rew")


def test_nothing_is_made_or_removed(b2nd: str) -> None:
    fs = fsspec.filesystem("fzmfs", fo=b2nd)
    for use in (
        lambda: fs.mkdir("x"),
        lambda: fs.makedirs("x/y", exist_ok=True),
        lambda: fs.rmdir("chunks"),
        lambda: fs.rm("data.raw"),
        lambda: fs.rm_file("data.raw"),
        lambda: fs.cp_file("data.raw", "x"),
        lambda: fs.touch("x"),
        lambda: fs.pipe_file("x", b""),
    ):
        with pytest.raises(OSError, match="read-only"):
            use()


@pytest.mark.parametrize("cache", ["blockcache", "filecache", "simplecache"])
def test_the_caches_of_fsspec_keep_its_files(cache: str, b2nd: str, tmp_path: Path) -> None:
    chain = f"{cache}::fzmfs://data.raw::file://{b2nd}"
    for _ in range(2):
        with fsspec.open(chain, **{cache: {"cache_storage": str(tmp_path)}}) as file:
            assert file.read() == fzmfs.open(b2nd).read("data.raw")


def test_a_directory_with_too_many_entries_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fzmfs._fsspec._LISTED", 2000)
    fs = fsspec.filesystem("fzmfs", fo=DATA / "blosc2/x09_fill_huge_zero.b2frame", dtype="u1", shape=2**31 - 1)
    assert len(fs.ls("data.zarr/data/c")) == 1024
    fs = fsspec.filesystem("fzmfs", fo=DATA / "blosc2/own/small_special_chunks.b2frame")
    with pytest.raises(fzmfs.Error) as caught:
        fs.ls("chunks")
    assert caught.value.kind == "too_large"


def test_ranges_count_as_those_of_python(b2nd: str) -> None:
    fs = fsspec.filesystem("fzmfs", fo=b2nd)
    whole = fs.cat_file("data.raw")
    for start, end in ((0, 5), (7, None), (None, 9), (-5, None), (-9, -3), (5, 3), (10070, 20000), (20000, None)):
        assert fs.cat_file("data.raw", start, end) == whole[start:end], (start, end)
    ranges = fs.cat_ranges(["data.raw", "data.raw"], [0, 100], [4, 104])
    assert ranges == [whole[:4], whole[100:104]]
    assert fs.head("data.raw", 3) == whole[:3] and fs.tail("data.raw", 3) == whole[-3:]


def test_an_open_file_is_a_file(b2nd: str, tmp_path: Path) -> None:
    fs = fsspec.filesystem("fzmfs", fo=b2nd)
    whole = fs.cat_file("data.raw")
    with fs.open("data.raw") as file:
        assert (file.size, file.name) == (10080, "data.raw")
        assert file.readable() and file.seekable() and not file.writable()
        assert file.read(3) == whole[:3] and file.seek(-4, io.SEEK_END) == 10076
        assert file.read() == whole[-4:] and file.read(1) == b""
        assert file.seek(100) == 100 and file.seek(5, io.SEEK_CUR) == 105
        copy = pickle.loads(pickle.dumps(file))
        assert copy.tell() == 105 and copy.read(7) == file.read(7) == whole[105:112]
        buffer = bytearray(20)
        assert file.seek(0) == 0 and file.readinto(buffer) == 20 and buffer == whole[:20]
        with pytest.raises(OSError):
            file.seek(-1)
    assert np.array_equal(np.load(fs.open("data.npy")), fzmfs.open(b2nd)["data"][...])
    fs.get("chunks", str(tmp_path / "chunks"), recursive=True)
    assert (tmp_path / "chunks/000003.raw").read_bytes() == fs.cat("chunks/000003.raw")
    for mode in ("wb", "ab", "r+b"):
        with pytest.raises(OSError, match="read-only"):
            fs.open("data.raw", mode)


def test_text_and_tables_are_read_through_a_chain(tmp_path: Path) -> None:
    lines = "name,value\n" + "".join(f"row {n},{n * n}\n" for n in range(20000))
    (tmp_path / "table.csv.zst").write_bytes(Zstd(level=3).encode(lines.encode()))
    url = f"fzmfs://data.raw::file://{tmp_path}/table.csv.zst"
    with fsspec.open(url, "rt") as file:
        assert file.readline() == "name,value\n" and sum(1 for _ in file) == 20000
    # By the name of the container, older versions would decompress what is decompressed already.
    table = pandas.read_csv(url, compression=None)
    assert table["value"].tolist() == [n * n for n in range(20000)]
    assert pandas.read_csv(url.replace("data.raw", "table.csv"), compression=None).equals(table)


def test_the_container_may_be_on_any_file_system_that_makes_a_local_copy(b2nd: str) -> None:
    with fsspec.open("memory://fzmfs/x.b2nd", "wb") as file:
        file.write(Path(b2nd).read_bytes())
    want = fzmfs.open(b2nd).read("data.raw")
    with fsspec.open("fzmfs://data.raw::simplecache::memory://fzmfs/x.b2nd") as file:
        assert file.read() == want
    with pytest.raises(ValueError, match="simplecache::memory"):
        fsspec.open("fzmfs://data.raw::memory://fzmfs/x.b2nd").open()
    local = [f"{name}://{b2nd}" for name in ("file", "local") if name in fsspec.available_protocols()]
    for fo in (b2nd, Path(b2nd), *local, fzmfs.open(b2nd)):
        assert fsspec.filesystem("fzmfs", fo=fo).cat("data.raw") == want
    # A sparse frame is a directory.
    sparse = DATA / "blosc2/n22_sframe_b2nd.b2nd"
    with fsspec.open(f"fzmfs://data.raw::file://{sparse}") as file:
        assert file.read() == fzmfs.open(sparse).read("data.raw")


def test_the_group_opens_by_its_url(tmp_path: Path) -> None:
    data = made.frames(tmp_path / "x.zst")
    options = {"fzmfs": dict(made.OPTIONS)}
    zarr = pytest.importorskip("zarr", "3", reason="no zarr-python 3 for this Python")
    group = zarr.open_group(f"fzmfs://data.zarr::file://{tmp_path}/x.zst", mode="r", storage_options=options)
    assert np.array_equal(group["data"][:300], data[:300])


def test_file_systems_pickle_and_are_shared_by_threads(b2nd: str, tmp_path: Path) -> None:
    path = shutil.copy(b2nd, tmp_path / "x.b2nd")
    fs, name = fsspec.core.url_to_fs(f"fzmfs://data.raw::file://{path}", fzmfs={"threads": 1})
    want = fs.cat(name)
    copy = pickle.loads(pickle.dumps(fs))
    assert copy.cat(name) == want and copy.ukey(name) == fs.ukey(name) != fs.ukey("data.npy")
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(fs.cat(name))) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [want] * 8


def test_broken_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(fzmfs.Error) as caught:
        fsspec.open(f"fzmfs://data.raw::file://{DATA}/fzm/bad/header_crc.fzm").open()
    assert caught.value.kind == "checksum"
    data = made.frames(tmp_path / "x.zst", broken=7)
    fs = fsspec.filesystem("fzmfs", fo=tmp_path / "x.zst")
    for read in (fs.cat, lambda path: fs.open(path).read()):
        with pytest.raises(fzmfs.Error):
            read("data.raw")
    end = 700 * 2003 * 4
    assert fs.cat_file("data.raw", 0, end) == data[:700].tobytes()
