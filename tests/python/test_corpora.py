"""Every file of the corpora: what it decodes to, and that what is broken is an error and never more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conftest import CASES, DATA, manifest, sha256

import fzmfs

# Of each of the five formats, in rounds of a hundred.
MUTATIONS = max(100, 2000 * CASES // 256)


def test_every_fzm_file_has_the_bytes_of_its_manifest() -> None:
    cases = [c for c in manifest("fzm", "cases") if c["compare"] == "exact" and c.get("defined_bytes") is None]
    assert len(cases) > 20
    for case in cases:
        archive = fzmfs.open(DATA / "fzm" / case["file"])
        raw = archive.read("data.raw")
        assert (len(raw), sha256(raw)) == (case["out_size"], case["out_sha256"]), case["file"]
        data = archive.get("data")
        if data is not None:
            assert data[...].tobytes() == raw[: data.nbytes], case["file"]


def test_every_blosc2_file_has_the_bytes_of_its_manifest() -> None:
    count = 0
    for case in manifest("blosc2", "cases"):
        if not case.get("sha256") or not (DATA / "blosc2" / case["file"]).exists() or case["library"] != "ok":
            continue
        archive = fzmfs.open(DATA / "blosc2" / case["file"])
        if "zfp" in case["file"]:
            # A codec that fzmfs lacks, and says so.
            with pytest.raises(fzmfs.Error) as caught:
                archive.read("data.raw")
            assert caught.value.kind == "unsupported" and "zfp" in str(caught.value)
            continue
        if archive.entry("data.raw").size != case["length"] or case["length"] > 1 << 26:
            continue
        raw = archive.read("data.raw")
        assert sha256(raw) == case["sha256"], case["file"]
        if "data" in archive:
            # Whole elements: bytes after the last one are in no array.
            data = archive["data"]
            assert len(raw) - data.itemsize < data.nbytes <= len(raw), case["file"]
            assert data[...].tobytes() == raw[: data.nbytes], case["file"]
        count += 1
    assert count > 40, count


def test_every_tensor_has_the_bytes_of_its_manifest() -> None:
    count = 0
    for file in manifest("ztensor", "files"):
        archive = fzmfs.open(DATA / "ztensor" / file["file"])
        seen: dict[str, int] = {}
        for tensor in file["tensors"]:
            digest, name = tensor.get("dense_sha256"), tensor["name"]
            seen[name] = seen.get(name, 0) + 1
            # Of several with one name the later ones have a number, in the tree and here.
            name += f"~{seen[name]}" if seen[name] > 1 else ""
            # NumPy has no array of this type; the tree still has its bytes.
            if not digest or name not in archive:
                continue
            array = archive[name]
            assert list(array.shape) == tensor["shape"], (file["file"], name)
            assert sha256(array[...].tobytes()) == digest, (file["file"], name)
            count += 1
    assert count > 100, count


def test_every_zstandard_file_has_the_bytes_of_its_manifest() -> None:
    count = 0
    for file in manifest("zstd", "files"):
        path = DATA / "zstd" / file["file"]
        if path.exists() and "dict" not in file["file"]:
            raw = fzmfs.open(path).read("data.raw")
            assert (len(raw), sha256(raw)) == (file["content_length"], file["content_sha256"]), file["file"]
            count += 1
    assert count > 5, count


def read_all(path: Path) -> str | None:
    """Reads everything; returns the kind of the first error."""
    kind = None
    try:
        archive = fzmfs.open(path, cache=8 << 20, spill=0, threads=1)
    except fzmfs.Error as error:
        return error.kind
    with archive:
        try:
            for name, array in archive.items():
                try:
                    if array.nbytes <= 1 << 22:
                        array[...]
                    else:
                        array[(0,) * array.ndim], array[(-1,) * array.ndim]
                except fzmfs.Error as error:
                    kind = kind or error.kind
                except MemoryError:
                    pass
            archive.read("data.raw", 0, 1 << 16) if any(e.path == "data.raw" for e in archive.files("", recursive=False)) else None
        except fzmfs.Error as error:
            kind = kind or error.kind
    return kind


def bad_files() -> list[Path]:
    folders = [DATA / "broken", *DATA.glob("*/bad")]
    return sorted(p for folder in folders for p in folder.rglob("*") if p.is_file() and p.name != "MANIFEST.json")


def test_broken_files_are_errors_and_nothing_worse() -> None:
    kinds = [read_all(path) for path in bad_files()]
    assert len(kinds) > 200 and sum(kind is not None for kind in kinds) > 150
    assert set(kinds) <= {None, "truncated", "corrupt", "checksum", "unsupported", "too_large", "no_room", "io", "usage"}


@pytest.mark.parametrize("folder", ["fzm", "blosc2", "ztensor", "zstd", "zxc", "tar"])
def test_mutated_files_are_errors_and_nothing_worse(folder: str, tmp_path: Path) -> None:
    rng = random.Random(folder)
    good = [p for p in sorted((DATA / folder).rglob("*")) if p.is_file() and "bad" not in p.parts and p.stat().st_size < 40_000]
    good = [p for p in good if p.suffix not in (".json", ".md", ".tsv", ".dict", ".txt", ".raw")]
    paths = [tmp_path / str(number) for number in range(100)]
    for _ in range(MUTATIONS // len(paths)):
        # All of them, then the reads: a file that was just written is not read for 20 ms.
        for path in paths:
            # A new file: to write over one may wait for the disk.
            path.unlink(missing_ok=True)
            path.write_bytes(mutated(rng, rng.choice(good).read_bytes()))
        for path in paths:
            read_all(path)


def mutated(rng: random.Random, good: bytes) -> bytearray:
    body = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        if body:
            # Mostly in the header and the trailer, where the numbers are.
            at = rng.choice([rng.randrange(len(body)), rng.randrange(min(len(body), 200)), -rng.randrange(1, min(len(body), 200) + 1)])
            body[at] = rng.choice([0, 255, body[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
    if rng.random() < 0.1:
        del body[rng.randrange(len(body) + 1) :]
    return body
