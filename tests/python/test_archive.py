"""Archives: opening, the mapping, files, information, verification, errors."""

from __future__ import annotations

import os
import pickle
import pydoc
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA

import fzmfs
from fzmfs import _show


def test_an_archive_is_a_mapping_and_a_context_manager(b2nd: str) -> None:
    with fzmfs.open(b2nd) as archive:
        assert list(archive) == ["data"] and len(archive) == 1 and "data" in archive and "x" not in archive
        data = archive["data"]
        assert data.shape == (5, 4, 6, 3, 7) and data.dtype == np.dtype("<f4")
        assert archive.get("x") is None and {**archive}.keys() == {"data"}
        with pytest.raises(KeyError, match="there are 'data'"):
            archive["date"]
    assert archive.closed
    archive.close()
    # Nothing keeps the file open.
    assert b2nd not in {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    for use in (lambda: archive["data"], lambda: data[0], lambda: archive.read("data.raw"), lambda: pickle.dumps(data)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_path_may_be_any_path(b2nd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fzmfs.open(Path(b2nd))["data"].size == 2520
    monkeypatch.chdir(os.path.dirname(b2nd))
    archive = fzmfs.open(os.path.basename(b2nd))
    monkeypatch.chdir("/")
    assert archive.source == b2nd and pickle.loads(pickle.dumps(archive))["data"].size == 2520


def test_names_are_those_of_the_container() -> None:
    assert "x" not in fzmfs.open(DATA / "zstd/mixed-generations.zst")
    names = list(fzmfs.open(DATA / "fzm/lq1d_f32_noa_rle.fzm"))
    assert names[0] == "data" and {"buffers/output", "buffers/outlier_count"} < set(names)
    sparse = fzmfs.open(DATA / "ztensor/v12-sparse-index-dtypes.zt")
    assert any(name.endswith("/indptr") or name.endswith("/coords") for name in sparse), list(sparse)


def test_files_are_listed_and_read(b2nd: str) -> None:
    archive = fzmfs.open(b2nd)
    entries = {entry.path: entry for entry in archive.files()}
    assert entries["data.raw"] == fzmfs.Entry("data.raw", "file", 10080) and entries["chunks"].kind == "directory"
    assert "chunks/000000.raw" in entries
    assert {entry.path for entry in archive.files(recursive=False)} == {p for p in entries if "/" not in p}
    assert [entry.path for entry in archive.files("chunks")][0] == "chunks/000000.raw"
    whole = archive.read("data.raw")
    assert whole == archive["data"][...].tobytes() and archive.size("data.raw") == len(whole) == 10080
    assert archive.read("data.raw", 100, 7) == whole[100:107]
    assert archive.read("data.raw", 10070) == archive.read("data.raw", 10070, 99) == whole[10070:]
    assert archive.read("data.raw", 10080) == archive.read("data.raw", 1 << 60, 5) == archive.read("data.raw", 3, 0) == b""
    assert archive.entry("data.npy").size == 10080 + 128
    with pytest.raises(ValueError):
        archive.read("data.raw", -1)
    with pytest.raises(fzmfs.Error) as error:
        archive.read("data.rew")
    assert error.value.kind == "not_found" and error.value.errno == 2


def test_info_is_that_of_the_command(b2nd: str) -> None:
    info = fzmfs.open(b2nd).info
    assert list(info)[:3] == ["format", "format_version", "file_size"] and info["format"] == "blosc2"


def test_verify_checks_everything_and_reports(b2nd: str) -> None:
    archive = fzmfs.open(b2nd)
    seen: list[tuple[int, int | None]] = []
    report = archive.verify(lambda done, total: seen.append((done, total)))
    assert report.bytes >= 10080 and report.checks > 0
    assert seen[0][0] == 0 and seen[-1][0] == report.bytes and archive.verify() == report
    archive.check()

    def fails(done: int, total: int | None) -> None:
        seen.append((done, total))
        raise RuntimeError("stop")

    seen.clear()
    with pytest.raises(RuntimeError, match="stop"):
        archive.verify(fails)
    assert len(seen) == 1


def test_an_error_says_what_where_and_survives_pickling() -> None:
    path = DATA / "fzm/bad/header_crc.fzm"
    with pytest.raises(fzmfs.Error) as caught:
        fzmfs.open(path)
    error = caught.value
    assert isinstance(error, OSError) and error.kind == "checksum" and error.errno == 5
    assert error.filename == str(path) and error.field and str(path) in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.kind, copy.field, copy.offset, str(copy)) == (error.kind, error.field, error.offset, str(error))
    with pytest.raises(fzmfs.Error) as caught:
        fzmfs.open("/nonexistent")
    assert caught.value.errno == 2
    with pytest.raises(OSError):
        fzmfs.open(DATA / "README.md")


def test_options_are_those_of_the_command_line(b2nd: str) -> None:
    archive = fzmfs.open(b2nd, cache="16M", threads=1, verify="first", device="cpu", window="64M", spill=0)
    assert archive["data"][0].shape == (4, 6, 3, 7)
    raw = fzmfs.open(DATA / "zstd/mixed-generations.zst", dtype=">u2", shape=(3, 5))
    assert raw["data"].dtype == np.dtype(">u2") and raw["data"].shape == (3, 5)
    assert raw["data"][...].tobytes() == raw.read("data.raw", 0, 30)
    fields = fzmfs.open(DATA / "zstd/mixed-generations.zst", dtype=[("a", "<i4"), ("b", "u1")], shape=4)
    assert fields["data"]["a" if False else 1]["b"] == fields.read("data.raw", 9, 1)[0]
    wrongs = [{"verify": "no"}, {"device": "tpu"}, {"cache": "1X"}, {"cache": -1}, {"cache": "-1"}, {"threads": 0}]
    wrongs += [{"shape": (3, -1)}, {"shape": 1 << 63}, {"dtype": object}, {"dtype": "V0"}, {"spill": 1 << 64}]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            fzmfs.open(b2nd, **wrong)
    with pytest.raises(fzmfs.Error):
        fzmfs.open(b2nd, format="zxc")


def test_a_source_that_changed_is_an_error_of_its_own_kind(b2nd: str, tmp_path: Path) -> None:
    path = tmp_path / "x.b2nd"
    shutil.copy(b2nd, path)
    archive = fzmfs.open(path)
    pickled = pickle.dumps(archive["data"])
    os.utime(path, ns=(1, 1))
    with pytest.raises(fzmfs.Error) as caught:
        pickle.loads(pickled)
    assert caught.value.kind == "changed"
    with pytest.raises(fzmfs.Error) as caught:
        archive["data"][...]
    assert caught.value.kind == "changed"


@pytest.mark.parametrize("path", sorted(p for p in DATA.glob("*/*") if p.suffix in (".fzm", ".zt", ".b2nd", ".zst")))
def test_every_container_has_a_page(path: Path) -> None:
    with fzmfs.open(path) as archive:
        for shown in (archive, *list(archive.values())[:3]):
            page = shown._repr_html_()
            page.encode()
            assert page.startswith("<div>") and page.count("<script") == 0


def test_names_with_what_nobody_sees_are_shown_escaped() -> None:
    assert _show.unescaped("a%2Fb/%/%E2%80%AEx") == "a/b//\u202ex" and _show.unescaped("%FF") == "%FF"
    assert _show.text("<a>\u202e\x00\ud800") == "&lt;a&gt;\\u202e\\x00\\ud800"


def test_help_is_a_guide() -> None:
    guide = pydoc.plain(pydoc.render_doc(fzmfs))
    assert "run[\"data\"][10:20, ::2]" in guide and "read_into" in guide and "gpu_memory" in guide


def test_it_shows_what_it_is(b2nd: str) -> None:
    archive = fzmfs.open(b2nd)
    assert repr(archive) == f"<fzmfs.Archive {b2nd!r}>"
    assert repr(archive["data"]) == "<fzmfs.Array 'data' 5x4x6x3x7 float32>"
    page = archive._repr_html_()
    assert all(part in page for part in ("blosc2", "5x4x6x3x7", "shuffle -&gt; zlib", "times what is stored", "<img"))
    assert all(part in archive["data"]._repr_html_() for part in ("5x4x6x3x7", "float32", "<img", "<pre>[["))
    assert "<svg" in fzmfs.open(DATA / "fzm/lq1d_f32_noa_rle.fzm")._repr_html_()
    assert "data" in archive._ipython_key_completions_()
    archive.close()
    assert "closed" in repr(archive)
