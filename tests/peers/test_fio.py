"""A file that fio has written with a checksum in each block, compressed, which fio verifies through a mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import mounted

if shutil.which("fio") is None:
    pytest.skip("fio is not installed", allow_module_level=True)
SIZE, PIECE = 48 << 20, 1 << 20
COMMON = [f"--size={SIZE}", "--bsrange=16k-16k", "--verify=crc32c", "--verify_fatal=1", "--group_reporting", "--output-format=terse"]


def fio(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    args = ["fio", "--name=it", f"--filename={path}", *COMMON, *options]
    return subprocess.run(args, capture_output=True, text=True, check=False, cwd=os.environ.get("TMPDIR", "/tmp"))


def verified(path: Path, engine: str, order: str, jobs: int) -> subprocess.CompletedProcess[str]:
    return fio(path, "--readonly", f"--rw={order}", f"--ioengine={engine}", f"--numjobs={jobs}", "--iodepth=16", "--thread")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fio") / "f"
    done = fio(path, "--rw=write", "--ioengine=psync", "--do_verify=0", "--verify_state_save=0", "--buffer_compress_percentage=50", "--refill_buffers")
    assert done.returncode == 0 and path.stat().st_size == SIZE, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module", params=["one frame", "frames", "seekable", "blosc2"])
def packed(request: pytest.FixtureRequest, written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("packed"), written.read_bytes()
    if request.param == "blosc2":
        import blosc2

        blosc2.SChunk(chunksize=PIECE, data=data, urlpath=str(folder / "f.b2frame"), cparams={"typesize": 4})
        return folder / "f.b2frame"
    step = SIZE if request.param == "one frame" else PIECE
    table, path = b"", folder / "f.zst"
    with path.open("wb") as file:
        for start in range(0, SIZE, step):
            frame = subprocess.run(["zstd", "-1qc"], input=data[start : start + step], capture_output=True, check=True).stdout
            file.write(frame)
            table += len(frame).to_bytes(4, "little") + step.to_bytes(4, "little")
        if request.param == "seekable":
            end = (len(table) // 8).to_bytes(4, "little") + b"\0" + 0x8F92EAB1.to_bytes(4, "little")
            file.write(0x184D2A5E.to_bytes(4, "little") + len(table + end).to_bytes(4, "little") + table + end)
    return path


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("order", ["read", "randread"])
@pytest.mark.parametrize("engine", ["psync", "libaio", "mmap", "io_uring"])
def test_fio_verifies_what_it_wrote(engine: str, order: str, jobs: int, packed: Path, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    if fio(probe, "--size=64k", "--rw=write", f"--ioengine={engine}", "--do_verify=0", "--verify_state_save=0").returncode:
        pytest.skip(f"fio has no {engine} here")
    # Few pieces fit: most are decoded again, and by several readers at once.
    with mounted(packed, tmp_path / "m", "-o", "cache=8M") as point:
        done = verified(point / "data.raw", engine, order, jobs)
        assert done.returncode == 0, done.stdout + done.stderr


def test_fio_sees_a_byte_that_differs(written: Path, tmp_path: Path) -> None:
    data = bytearray(written.read_bytes())
    data[SIZE // 2 + 5000] ^= 1
    subprocess.run(["zstd", "-1qo", tmp_path / "f.zst"], input=data, check=True)
    with mounted(tmp_path / "f.zst", tmp_path / "m") as point:
        assert verified(point / "data.raw", "psync", "read", 1).returncode != 0
