"""zstd's own files: those of its tests of decompression, and what its decodecorpus makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from backports import zstd
from conftest import cat, run, said, source

TESTS = source("ZSTD") / "tests"
# Of each seed.
FRAMES = 500


def by_zstd(path: Path) -> bytes | None:
    """What libzstd decodes, of the version that the tests are of; `None` if it refuses."""
    try:
        return zstd.decompress(path.read_bytes())
    except zstd.ZstdError:
        return None


@pytest.mark.parametrize("path", sorted((TESTS / "golden-decompression").glob("*.zst")), ids=lambda path: path.name)
def test_a_golden_file_decodes_as_zstd_decodes_it(path: Path) -> None:
    assert cat(path) == by_zstd(path)
    assert run("verify", path).returncode == 0


@pytest.mark.parametrize("path", sorted((TESTS / "golden-decompression-errors").glob("*.zst")), ids=lambda path: path.name)
def test_a_golden_file_with_an_error_is_refused(path: Path) -> None:
    assert by_zstd(path) is None
    for command in (["cat", path, "data.raw"], ["verify", path]):
        done = run(*command)
        assert done.returncode == 1, done


@pytest.mark.parametrize("path", sorted((TESTS / "golden-compression").iterdir()), ids=lambda path: path.name)
@pytest.mark.parametrize("level", ["-1", "-9", "-19", "--ultra -22 --long=27", "--fast=5 --no-check"])
def test_a_golden_input_comes_back(level: str, path: Path, tmp_path: Path) -> None:
    subprocess.run(["zstd", "-q", *level.split(), path, "-o", tmp_path / "x.zst"], check=True)
    assert cat(tmp_path / "x.zst") == path.read_bytes()


@pytest.mark.parametrize(("seed", "options"), [(1, []), (2, []), (3, ["--max-block-size-log=10"]), (4, ["--max-content-size-log=17"])])
def test_decodecorpus(seed: int, options: list[str], tmp_path: Path) -> None:
    if not (TESTS / "decodecorpus").exists():
        pytest.skip("decodecorpus was not built")
    for folder in ("z", "o"):
        (tmp_path / folder).mkdir()
    make = [TESTS / "decodecorpus", f"-n{FRAMES}", f"-s{seed}", f"-p{tmp_path}/z", f"-o{tmp_path}/o", *options]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    frames = sorted((tmp_path / "z").iterdir())
    wrong = []
    for path in frames:
        want = (tmp_path / "o" / path.name.removesuffix(".zst")).read_bytes()
        assert by_zstd(path) == want
        done = run("cat", path, "data.raw")
        if done.returncode or done.stdout != want:
            wrong.append(f"{path.name}: {done.stderr.decode().strip() or 'other bytes'}")
    assert len(frames) == FRAMES and not wrong, wrong[:5]
    said(f"decodecorpus: {len(frames)} frames of seed {seed} {' '.join(options)}")
