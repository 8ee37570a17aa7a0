"""The archives of ratarmount's tests, in Zstandard, as Python's tarfile reads them."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from backports import zstd
from conftest import mounted, said, source

PLAIN = {".tar": bytes, ".bz2": bz2.decompress, ".gz": gzip.decompress, ".zst": zstd.decompress, ".pzstd": zstd.decompress}
FILES = sorted(path for path in (source("RATARMOUNT") / "tests").iterdir() if ".tar" in path.name and path.suffix in PLAIN)
# Larger members are compared by their size alone.
LARGE = 1 << 30
# The access time in a header of GNU, which tarfile takes for a prefix.
TIME = re.compile(r"1\d{10}/")
GNU = b"ustar  "
# Archives of which tarfile has another view.
DIFFERENT = {
    "single-self-link.tar": "reading a hard link to no member before it is EIO (tar in Zstandard and ZXC)",
    "two-self-links.tar": "reading a hard link to no member before it is EIO (tar in Zstandard and ZXC)",
    "updated-folder-with-file.tar": "a directory that has members stays one, as when GNU tar extracts it (tar in Zstandard and ZXC)",
    "updated-file-implicitly-with-folder.tar": "members below a file are not shown, nor extracted by GNU tar (tar in Zstandard and ZXC)",
    "denormal-paths-tarfile.tar": "error.txt follows the members before a broken header, which GNU tar refuses (tar in Zstandard and ZXC)",
}


def unpacked(path: Path) -> bytes:
    data = PLAIN[path.suffix](path.read_bytes())
    # Some are compressed several times.
    while data[:4] == b"\x28\xb5\x2f\xfd" or data[:2] == b"\x1f\x8b":
        data = zstd.decompress(data) if data[0] == 0x28 else gzip.decompress(data)
    return data


def name_of(member: tarfile.TarInfo, header: bytes) -> str:
    """Where a member is shown: without a leading slash, `..` as a name, and bytes that are not UTF-8 escaped."""
    is_time = header[257:264] == GNU and not TIME.match(header[:100].decode("latin-1"))
    name = TIME.sub("", member.name) if is_time else member.name
    name = "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in name)
    return "/".join("%2E%2E" if part == ".." else part for part in name.split("/") if part not in ("", "."))


def wanted(tar: tarfile.TarFile, data: bytes) -> dict[str, tarfile.TarInfo]:
    """The members by their paths; of those with the same path the last counts."""
    all_of_them = [member for member in tar.getmembers() if not member.isdev()]
    members = {name_of(member, data[member.offset_data - 512 : member.offset_data]): member for member in all_of_them}
    return {name: member for name, member in members.items() if name}


def same_target(top: Path, name: str, target: str) -> bool:
    """Whether a link has its target, or cannot be read because that is outside of the archive."""
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    try:
        return os.readlink(top / name) == target
    except PermissionError:
        return os.path.isabs(target) or inside.startswith("..")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_tree_is_the_one_that_tarfile_reads(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if path.name in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=f"{path.name}: {DIFFERENT[path.name]}", strict=True))
    (tmp_path / "x.tar").write_bytes(unpacked(path))
    subprocess.run(["zstd", "-1q", tmp_path / "x.tar"], check=True)
    try:
        tar = tarfile.open(tmp_path / "x.tar")  # noqa: SIM115 - read below
        members = wanted(tar, (tmp_path / "x.tar").read_bytes())
    except tarfile.ReadError as error:
        pytest.skip(f"tarfile does not read it: {error}")
    wrong = []
    with mounted(tmp_path / "x.tar.zst", tmp_path / "m") as point:
        top = point / "x.tar"
        shown = {str(Path(at, name).relative_to(top)) for at, folders, files in os.walk(top) for name in folders + files}
        # An archive among the members is a directory.
        nested = {name for name, member in members.items() if member.isfile() and name.endswith(".tar") and (top / name).is_dir()}
        shown = {name for name in shown if not any(name.startswith(f"{each}/") for each in nested)}
        implied = {"/".join(name.split("/")[:end]) for name in members for end in range(1, name.count("/") + 1)}
        if shown != set(members) | implied:
            wrong.append(f"only shown {sorted(shown - set(members) - implied)[:5]}, only in it {sorted(set(members) - shown)[:5]}")
        for name, member in members.items():
            if name not in shown or name in nested:
                continue
            found = (top / name).lstat()
            kind = {"dir": member.isdir() or member.type == b"D", "link": member.issym(), "file": member.isfile() or member.islnk()}
            is_kind = {"dir": stat.S_ISDIR(found.st_mode), "link": stat.S_ISLNK(found.st_mode), "file": stat.S_ISREG(found.st_mode)}
            if kind != is_kind:
                wrong.append(f"{name}: {is_kind}")
            elif member.issym() and not same_target(top, name, member.linkname):
                wrong.append(f"{name}: not the link to {member.linkname}")
            if int(found.st_mtime) != int(member.mtime):
                wrong.append(f"{name}: mtime {found.st_mtime}, not {member.mtime}")
            if kind["file"]:
                file = tar.extractfile(member)
                size = member.size if member.isfile() else None
                if size is not None and found.st_size != size:
                    wrong.append(f"{name}: {found.st_size} bytes, not {size}")
                elif file is not None and found.st_size < LARGE and (top / name).read_bytes() != file.read():
                    wrong.append(f"{name}: other bytes")
    assert not wrong, wrong[:10]
    said(f"ratarmount: {path.name}: {len(members)} members")
