"""Archives: opening, the mapping, files, information, verification, errors."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import pickle
import pydoc
import re
import shutil
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import made
import numpy as np
import pytest
from conftest import DATA, PATIENCE
from numcodecs.zstd import Zstd

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


def test_members_of_a_compressed_archive_are_files_and_containers(b2nd: str, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(b2nd, "runs/a.b2nd")
        long = "/".join(["n" * 150] * 2)
        for name, kind, target in [
            (long, tarfile.REGTYPE, ""),
            ("runs/up", tarfile.SYMTYPE, "../" + long),
            ("hard", tarfile.LNKTYPE, long),
            ("out", tarfile.SYMTYPE, "/etc/passwd"),
        ]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"text"))
    path = tmp_path / "x.tar.zst"
    path.write_bytes(Zstd().encode(archive.getvalue()))
    opened = fzmfs.open(path)
    assert list(opened) == ["x.tar/runs/a.b2nd/data"]
    np.testing.assert_array_equal(opened["x.tar/runs/a.b2nd/data"], fzmfs.open(b2nd)["data"])
    assert [opened.read(f"x.tar/{name}") for name in (long, "runs/up", "hard")] == [b"text"] * 3
    assert opened.read("x.tar/hard", 1, 2) == b"ex"
    kinds = {entry.path: (entry.kind, entry.size) for entry in opened.files()}
    assert kinds["x.tar/hard"] == ("file", 4) and kinds["x.tar/out"][0] == "link"
    with pytest.raises(fzmfs.Error, match="a link out of the archive"):
        opened.read("x.tar/out")


def test_names_are_those_of_the_container() -> None:
    assert "x" not in fzmfs.open(DATA / "zstd/mixed-generations.zst")
    names = list(fzmfs.open(DATA / "fzm/lq1d_f32_noa_rle.fzm"))
    assert names[0] == "data" and {"buffers/output", "buffers/outlier_count"} < set(names)
    sparse = fzmfs.open(DATA / "ztensor/v12-sparse-index-dtypes.zt")
    assert any(name.endswith("/indptr") or name.endswith("/coords") for name in sparse), list(sparse)


def test_arrays_have_the_names_of_members_whatever_else_is_called_so(b2nd: str, tmp_path: Path) -> None:
    members = ["stored/x.b2nd", "chunks/a/y.b2nd", "tensors/x.b2nd", "data.zarr/z.b2nd", "x.b2nd"]
    with zipfile.ZipFile(tmp_path / "a.b2z", "w") as file:
        for member in members:
            file.write(b2nd, member)
        file.writestr("no.npy", b"not an array")
    with fzmfs.open(tmp_path / "a.b2z") as archive, fzmfs.open(b2nd) as alone:
        assert len(archive) == len(members) and {f"{member}/data" for member in members if "zarr" not in member} < set(archive)
        assert all(array[...].tobytes() == alone["data"][...].tobytes() for array in archive.values())


def test_a_broken_member_leaves_the_others_readable(b2nd: str, tmp_path: Path) -> None:
    frame = Path(b2nd).read_bytes()
    with zipfile.ZipFile(tmp_path / "a.b2z", "w") as file:
        file.writestr("broken.b2nd", frame[:40] + bytes(len(frame) - 40))
        file.write(b2nd, "whole.b2nd")
    with fzmfs.open(tmp_path / "a.b2z") as archive:
        assert list(archive) == ["whole.b2nd/data"] and archive["whole.b2nd/data"][0].size == 504


def test_what_is_no_name_is_not_there(b2nd: str) -> None:
    archive = fzmfs.open(b2nd)
    for key in (0, None, ("data",), []):
        assert archive.get(key, 3) == 3 and key not in archive
        with pytest.raises(KeyError):
            archive[key]


def test_an_archive_is_closed_while_others_index_it() -> None:
    def index() -> None:
        with contextlib.suppress(ValueError):
            while True:
                kept.extend(archive[name] for name in names)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            kept: list[fzmfs.Array] = []
            archive = fzmfs.open(DATA / "ztensor/v11-all-dtypes.zt")
            names = list(archive)
            threads = [threading.Thread(target=index) for _ in range(4)]
            for thread in threads:
                thread.start()
            while len(kept) < 100:
                time.sleep(0)
            archive.close()
            for thread in threads:
                thread.join(PATIENCE)
            # Nothing keeps open what is closed.
            assert kept and all(array._native is None for array in kept)
    finally:
        sys.setswitchinterval(switch)


def test_a_missing_source_is_a_missing_file_and_a_missing_part_is_damage(b2nd: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        fzmfs.open(tmp_path / "none.fzm")
    assert isinstance(caught.value, fzmfs.Error) and pickle.loads(pickle.dumps(caught.value)).errno == 2
    archive = pickle.dumps(fzmfs.open(shutil.copy(b2nd, tmp_path / "x.b2nd")))
    os.remove(tmp_path / "x.b2nd")
    # Zarr takes a FileNotFoundError for a chunk of zeros.
    for use in (lambda: pickle.loads(archive), lambda: fzmfs.open(b2nd).read("none")):
        with pytest.raises(fzmfs.Error) as caught:
            use()
        assert not isinstance(caught.value, FileNotFoundError)


def test_a_name_like_a_url_is_found_from_another_directory(
    b2nd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x:").mkdir()
    shutil.copy(b2nd, tmp_path / "x:/b.b2nd")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(fzmfs.open("x://b.b2nd"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled)["data"].size == 2520


def test_a_cache_of_nothing_reads_everything(b2nd: str) -> None:
    archive, other = fzmfs.open(b2nd, cache=0), fzmfs.open(b2nd)
    assert archive.files() == other.files()
    for entry in archive.files():
        if entry.kind == "file":
            assert archive.read(entry.path) == other.read(entry.path), entry


def test_a_file_of_a_container_is_never_part_of_the_page(b2nd: str, tmp_path: Path) -> None:
    script = b"<script>alert(document.domain)</script>"
    (tmp_path / "pipeline.svg.zst").write_bytes(Zstd(level=1).encode(script))
    with zipfile.ZipFile(tmp_path / "a.b2z", "w") as file:
        file.write(b2nd, "a.b2nd")
        file.writestr("pipeline.svg", script)
    named = tmp_path / "<img src=x onerror=alert(1)>.b2nd"
    shutil.copy(b2nd, named)
    for path in (tmp_path / "pipeline.svg.zst", tmp_path / "a.b2z", named):
        archive = fzmfs.open(path)
        for shown in (archive, *archive.values()):
            page = shown._repr_html_()
            assert not re.search(r"<script|<svg|<img src=x", page) and base64.b64encode(script[:30]).decode() not in page


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
    assert report.bytes >= 10080 and report.checks > 0 and report.checksums == 0
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
    wrongs += [{"dtype": "3f4"}, {"dtype": np.dtype(("f4", (2, 3)))}, {"dtype": [("a", "f4"), ("b", "O")]}]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            fzmfs.open(b2nd, **wrong)
    with pytest.raises(fzmfs.Error):
        fzmfs.open(b2nd, format="zxc")


def test_types_that_ml_dtypes_adds_can_be_given(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "x.zst"
    path.write_bytes(Zstd(level=1).encode(bytes(range(240))))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        for given in (name, dtype):
            array = pickle.loads(pickle.dumps(fzmfs.open(path, dtype=given)["data"]))
            assert array.dtype == dtype and array[...].tobytes() == bytes(range(240))
            assert array[3:5].astype("f4").tobytes() == np.frombuffer(bytes(range(240)), dtype)[3:5].astype("f4").tobytes()
    for wrong in (ml_dtypes.int4, [("a", ml_dtypes.bfloat16)]):
        with pytest.raises(ValueError, match="not a type of elements"):
            fzmfs.open(path, dtype=wrong)


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


def test_what_was_overwritten_has_changed_and_is_not_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "x.zst"
    data = made.frames(path)
    old = path.read_bytes()
    new = b"".join(Zstd(level=1, checksum=True).encode((data[at : at + 100] + 1).tobytes()) for at in range(0, 1500, 100))
    for written in (new[: len(old)], bytes(len(old)), old[: len(old) // 2]):
        path.write_bytes(old)
        array = fzmfs.open(path, cache=0, **made.OPTIONS)["data"]
        array[:100]
        with path.open("r+b") as file:
            file.write(written)
            file.truncate(len(written))
        os.utime(path, ns=(1, 1))
        kinds = set()
        for row in [*range(0, 1500, 100)] * 2:
            with pytest.raises(fzmfs.Error) as caught:
                array[row : row + 150]
            kinds.add(caught.value.kind)
        assert kinds == {"changed"}


@pytest.mark.parametrize("path", sorted(p for p in DATA.glob("*/*") if p.suffix in (".fzm", ".zt", ".b2nd", ".zst")))
def test_every_container_has_a_page(path: Path) -> None:
    with fzmfs.open(path) as archive:
        for shown in (archive, *list(archive.values())[:3]):
            page = shown._repr_html_()
            page.encode()
            assert page.startswith("<div>") and page.count("<script") == 0 and len(page) < 60_000


def test_the_picture_on_a_page_is_small_and_says_what_it_shows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for data, said in (
        (random.normal(size=(1200, 1100)).astype("f4"), ["linear-gradient", "minimum -", "maximum "]),
        (random.integers(0, 3, (1500, 900), "u1"), ["linear-gradient", "one for each value: 0, 1, 2"]),
        (random.normal(size=3000), ["a curve from -", "maximum "]),
    ):
        path = tmp_path / "x.zst"
        path.write_bytes(Zstd(level=1).encode(data.tobytes()))
        page = fzmfs.open(path, dtype=data.dtype, shape=data.shape)["data"]._repr_html_()
        assert len(page) < 60_000 and all(part in page for part in said), page[-500:]
        png = base64.b64decode(re.search("image/png;base64,([^\"]*)", page)[1])
        plt = pytest.importorskip("matplotlib.pyplot")
        assert plt.imread(io.BytesIO(png), "png").shape[1] >= 150


def test_a_page_decodes_the_beginning_of_a_file_that_expands_without_end(tmp_path: Path) -> None:
    # 4 GiB in one frame of 131 KB, in which a block in the middle of the first GiB is broken.
    same = (((128 << 10) << 3) | 2).to_bytes(3, "little") + b"a"
    broken = ((10 << 3) | 4).to_bytes(3, "little") + b"\xff" * 10
    last = (((128 << 10) << 3) | 3).to_bytes(3, "little") + b"a"
    head = b"\x28\xb5\x2f\xfd\xc0\x38" + (4 << 30).to_bytes(8, "little")
    (tmp_path / "bomb.zst").write_bytes(head + same * 4096 + broken + same * (32768 - 4098) + last)
    archive = fzmfs.open(tmp_path / "bomb.zst", dtype="u1", shape=(4, 1024, 1024, 1024), threads=1)
    for page in (archive["data"]._repr_html_(), archive._repr_html_()):
        assert "viridis" in page
    assert "[97 97" in archive["data"]._repr_html_()


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
    assert "data:image/svg+xml;base64," in fzmfs.open(DATA / "fzm/lq1d_f32_noa_rle.fzm")._repr_html_()
    assert "data" in archive._ipython_key_completions_()
    archive.close()
    assert "closed" in repr(archive)
