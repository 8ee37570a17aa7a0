"""What the documents show is so: trees, the entry of fstab(5), units, options."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from conftest import DATA
from documents import Piece, pieces
from place import Place, place, s3, web  # noqa: F401
from servers import ROOT

import fzmfs

FOLDERS = {"README.md": "fzm", "FZM": "fzm*", "Blosc2": "blosc2", "ZXC": "zxc", "zTensor": "ztensor", "Zstandard": "zstd"}
FOLDERS["data"] = "[bfz]*[!s]"
# Files of every tree that its section does not repeat, and trees in trees.
COMMON = r"info\.json|data\.zarr(/.*)?|(data|stages|buffers|stored)/.*"


@cache
def shown() -> list[Piece]:
    program = os.environ.get("FZMFS_PROGRAM")
    return [piece for piece in pieces(program) if piece.language == ""] if program else []


def names(listing: str) -> Iterator[str]:
    """The paths of a listing, which stand before the descriptions."""
    last = folder = ""
    for line in listing.splitlines():
        for name in takewhile(re.compile(r".*[./<]").match, line.split()):
            # Another suffix of the name before.
            last = re.sub(r"\.\w+$", name, last) if name.startswith(".") else name
            if line.startswith(" "):
                last = f"{folder}{name}"
            elif name.endswith("/"):
                folder = name
            yield last


def pattern(name: str, stem: str) -> str:
    name = re.escape(name).replace("<stem>", re.escape(stem)).replace("00\\-lorenzo_quant", r"\d+-\w+")
    name = re.sub(r"<\w+>", ".+", name).replace("c/0/1", r"c(/\d+)*")
    return re.sub(r"\b\d{6}\b", r"\\d+", name) + (".*" if name.endswith("/") else "")


@cache
def trees(folder: str) -> list[tuple[Path, list[str]]]:
    """The paths of the files in each container of the corpus that is intact."""
    found = []
    for path in sorted(DATA.glob(f"{folder}/*")):
        # An archive has such a tree for each member, and one file here has a million chunks.
        if path.suffix in (".json", ".md", ".tsv", ".b2z") or path.name.startswith("x09"):
            continue
        try:
            with fzmfs.open(path) as archive:
                if isinstance(archive, fzmfs.Directory):
                    continue
                found.append((path, [entry.path for entry in archive.files() if entry.kind != "directory"]))
        except fzmfs.Error:
            continue  # a dictionary
    assert len(found) > 10
    return found


@pytest.mark.parametrize("piece", [piece for piece in shown() if ".json " in piece.text or "data.raw" in piece.text], ids=str)
def test_a_listing_has_the_files_of_the_tree(piece: Piece) -> None:
    folder = FOLDERS[re.search(r"README\.md|(?<=\) )\w+", piece.document)[0]]
    listed, all_trees = list(names(piece.text)), trees(folder)
    seen, part = set(), "data.zarr/" if piece.text.startswith("data.zarr") else ""
    for path, tree in all_trees:
        allowed = {name: re.compile(pattern(name, path.stem)) for name in listed}
        for file in (file for file in tree if file.startswith(part)):
            hits = [name for name, regex in allowed.items() if regex.fullmatch(file)]
            seen.update(hits)
            assert hits or not part and re.fullmatch(COMMON, file), f"{path.name}: {file} is not listed"
    assert [name for name in listed if name not in seen] == []


def only(word: str) -> str:
    (found,) = (piece.text for piece in shown() if word in piece.text)
    return found


def test_the_entry_of_fstab_mounts_as_mount_8_takes_it(place: Place) -> None:
    source, point, kind, options, _, _ = only("x-systemd.automount").split()
    place.run(f"mount.{kind} {source} {point} -n -o rw,{options} && test -s {point}/data.npy")


def test_the_unit_of_a_mount_mounts_as_mount_8_takes_it(place: Place) -> None:
    unit = dict(line.split("=", 1) for line in only("[Mount]").splitlines() if "=" in line)
    place.run(f"mount.{unit['Type']} {unit['What']} {unit['Where']} -o {unit['Options']} && test -s {unit['Where']}/data.npy")


@pytest.mark.parametrize("settings", ["of the manual", "of the unit"])
def test_the_service_mounts_with_the_settings_that_are_shown(settings: str, place: Place) -> None:
    service = only("[Service]")
    command = dict(re.findall(r"^(ExecStart|ExecStopPost)=-?(.*)", service, re.MULTILINE))
    given = only("expect=ETAG,") if settings == "of the manual" else re.sub(r"^(?:#     |.*\n)", "", service, flags=re.MULTILINE)
    start = re.sub(r"\$\{\w+\}", r'"\g<0>"', command["ExecStart"]).replace("/usr/bin/", "")
    stop = command["ExecStopPost"].replace("/usr/bin/", "")
    mounted = 'until mountpoint -q "$MOUNTPOINT"; do sleep 0.05; done'
    # Ended from outside, and killed, after which the mount is left.
    place.run(f"""
        set -a
        {given}
        {start} & {mounted}
        test -s "$MOUNTPOINT/data.npy"
        fzmfs umount "$MOUNTPOINT"
        wait $!
        {start} & {mounted}
        {{ kill -9 $!; wait $!; }} 2>/dev/null || true
        SERVICE_RESULT=signal
        {stop}
        ! mountpoint -q "$MOUNTPOINT"
    """)


# Values for each option of the table in README.md.
GIVEN = {
    "verify=auto|first|background|off": "verify=auto verify=first verify=background verify=off",
    "cache=SIZE": "cache=64M",
    "spill=SIZE": "spill=64M spill=0",
    "threads=N": "threads=2",
    "device=auto|cpu|cuda[:N]": "device=auto device=cpu",  # the others are refused where there is no GPU
    "dict=FILE": "dict=/data/field.dict,dict=/data/field.dict",
    "dtype=": "dtype=f4",
    "shape=": "dtype=f4,shape=512x512",
    "spacing=": "spacing=2.5x1",
    "units=": "units=um",
    "timeout=": "timeout=10",
    "expect=ETAG": "expect=ETAG",
    "remote_cache=DIR[:SIZE]": "remote_cache=/scratch/cache remote_cache=/scratch/cache:64M",
    "index=off|DIR": "index=off index=/scratch/index",
    "index_size=SIZE": "index_size=64M",
    "allow_other": "allow_other",
    "idle=SECONDS": "idle=60",
    "layout=replace|beside|flat|plain": "layout=replace layout=beside layout=flat layout=plain",
}


def test_a_mount_takes_each_option_of_the_table(place: Place) -> None:
    table = (ROOT / "README.md").read_text().partition("### Options\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", table.replace("\\|", "/"), re.MULTILINE)
    assert [name.replace("/", "|") for cell in cells for name in re.findall(r"`([^`]+)`", cell)] == list(GIVEN)
    shutil.copy(DATA / "zxc/d9.zxd", place.folder / "data/field.dict")
    shutil.copy(DATA / "zxc/v9_dict_l6.zxc", place.home / "field.zxc")
    for option in " ".join(GIVEN.values()).split():
        far = option.startswith(("timeout", "expect", "remote_cache"))
        source = "https://host/field.b2nd" if far else "samples.zst" if "dtype" in option else "field.fzm"
        if option == "expect=ETAG":
            source = "s3://bucket/field.b2nd"
        if option.startswith("dict"):
            source = "field.zxc"
        source, shown = ("logs", "log.txt*") if option.startswith("layout") else (source, "data.raw")
        place.run(f"fzmfs mount {source} m -o '{option}' && ls m/{shown} && fzmfs umount m")
