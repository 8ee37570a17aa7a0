"""Every line that users can copy from the documents is run, as it stands there, or says here why it is not."""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from typing import Any

import dask.array
import fsspec
import numpy as np
import pytest
import xarray
import zarr
from conftest import DATA
from documents import Piece, pieces
from place import Place, execute, place, s3, served, web  # noqa: F401
from servers import ROOT

import fzmfs

NOT_RUN = {
    "a word in a sentence": ["tar -t"],
    "changes the system; `scripts/package` does it in a system of its own": [
        "sudo apt-get install fuse3      # fusermount3, with which ordinary users mount",
        "sudo apt-get install ./fzmfs_*.deb",
        "sudo dnf install ./fzmfs-*.rpm",
        "sudo tar -xzf fzmfs-*.tar.gz -C /usr/local --strip-components=1",
        "mount -t fzmfs",
        "mount /mnt/field",
        "systemctl enable --now fzmfs@field",
    ],
    "builds everything, or runs for minutes": [
        "scripts/test    # format, lints, tests, documentation; scripts/test quick after a change, scripts/test full before a release",
        "scripts/package deb|rpm|wheel|tar",
        "scripts/release",
        "scripts/bench",
        "scripts/gpu pack",
        "scripts/fuzz FORMAT",
        "scripts/stress",
        "scripts/aarch64",
        "scripts/windows",
        "cargo build --no-default-features --features cli,remote,serve",
        "cargo install --path .",
        "pip install .",
        "pip install '.[all]' matplotlib torch safetensors",
        "cargo doc --open",
        "cargo doc --document-private-items",
    ],
    "needs a GPU, and PyTorch or CuPy for it: tests/python/test_cuda_peers.py; test_cuda.py has a driver that emulates one": [
        'torch.from_dlpack(fzmfs.open("run.fzm")["data"].cuda())',
        'cupy.asarray(fzmfs.open("run.fzm")["data"].cuda()[100:200])',
        "array.cuda()[10:20]",
        "torch.from_dlpack(array.cuda())",
    ],
    "needs containers; `scripts/containers` runs it": [
        "docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined ...",
        "podman run --device /dev/fuse --cap-add SYS_ADMIN ...     # root is not needed",
        "docker run -v /mnt/field:/field:ro,rslave ...",
    ],
    "needs a cluster; tests/python/test_recipes.py runs prolog and epilog": [
        "sbatch --comment='fzmfs expect=ETAG s3://bucket/field.b2nd' ...",
        "python3 work.py /run/fzmfs/$SLURM_JOB_ID/data.npy",
    ],
    "needs davfs2; `scripts/webdav` mounts with it": ["sudo mount -t davfs -o ro URL /mnt/x"],
    "needs a system with a journal": ["journalctl -t fzmfs"],
    "needs version 2 of the command line of AWS": ['eval "$(aws configure export-credentials --format env)"'],
    "is not a line to run": ["default-features = false", "shuffle -> zstd", "git clone"],
}
# What stands for something else, and forms that leave out what they work on.
COMPLETE = {
    "fzmfs COMMAND --help": "for c in mount umount list ls cat info verify extract doctor completions man; do fzmfs $c --help; done",
    "getfattr -d FILE": "fzmfs mount field.fzm m && getfattr -d m/data.raw",
    "fzmfs ls -R FILE": "fzmfs ls -R field.fzm",
    "fzmfs FILE MOUNTPOINT [-o OPTIONS]": "fzmfs field.fzm m -o cache=16M",
    "fzmfs mount s3://BUCKET/PREFIX/ DIR": "fzmfs mount s3://bucket/runs/ m && ls m/2024/a.fzm/data.npy",
    "zstd -dc": "zstd -dc log.txt.zst",
    "fzmfs info --json": "fzmfs info --json field.fzm",
}
# Of a command without anything to work on, only whether there is such a command with such options.
BARE = re.compile(r"fzmfs [a-z]+(?: -\S+| \[?[A-Z<][A-Z<>\]\[.]+)*")


@cache
def reasons() -> dict[str, str]:
    return {line: reason for reason, lines in NOT_RUN.items() for line in lines}


@cache
def everything() -> list[Piece]:
    return list(pieces(os.environ["FZMFS_PROGRAM"])) if "FZMFS_PROGRAM" in os.environ else []


def of(*languages: str) -> pytest.MarkDecorator:
    found = [piece for piece in everything() if piece.language in languages and left(piece)]
    return pytest.mark.parametrize("piece", found, ids=str)


def left(piece: Piece) -> str:
    """The lines of a piece that are run; one whose comment names an option, with that too."""
    lines = [line for line in piece.text.splitlines() if line not in reasons()]
    more = [option[1] + option[2] for line in lines if (option := re.fullmatch(r"(.*?) +#.*;( --\w+)", line))]
    return "\n".join(lines + more)


def test_each_line_that_is_not_run_is_in_a_document() -> None:
    lines = {line for piece in everything() for line in piece.text.splitlines()}
    assert reasons().keys() | COMPLETE.keys() <= lines


@of("sh")
def test_a_line_of_the_shell_works(piece: Piece, place: Place) -> None:
    text = left(piece)
    text = COMPLETE.get(text, text)
    if BARE.fullmatch(text):
        text = " ".join([word for word in text.split() if not word.startswith(("[", "<"))] + ["--help"])
    elif text.startswith("fzmfs serve "):
        for line in text.splitlines():
            place.serve(line)
        return
    for name in re.findall(r"(?:^|[|&] )(zstd|curl|aws|man|unshare|getfattr|jq|rclone|sqlite3)\b", text, re.MULTILINE):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    if text.startswith("scripts/"):
        # It builds what is built already, and finds it.
        place.bin(cargo=":")
        place.run(text, ROOT, CARGO_TARGET_DIR=str(place.folder))
    else:
        if " exports/" in text:
            place.exports()
        page = place.folder / "man/man1/fzmfs.1"
        page.parent.mkdir(parents=True)
        page.write_text(place.run("fzmfs man"))
        place.run(text)


@of("python")
def test_a_line_of_python_works(piece: Piece, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    text = left(piece)
    monkeypatch.chdir(place.home)
    for name, value in place.environment(text).items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {}
    if not text.startswith("import "):
        names = {"fzmfs": fzmfs, "numpy": np, "zarr": zarr, "xarray": xarray, "dask": dask, "fsspec": fsspec}
    if "torch." in text:
        names["torch"] = pytest.importorskip("torch")
    run = fzmfs.open("run.fzm")
    if piece.document == "__init__.py":
        names["array"] = np.empty((3, 100), "f4")
    elif piece.document.startswith("_"):
        names |= {"array": run["data"], "self": run["data"], "source": "run.fzm"}
        names |= {"index": np.s_[3:5], "out": np.empty((2, 100), "f4")}
    if piece.document == "_array.py":
        # Of four dimensions.
        names["array"] = fzmfs.open(DATA / "blosc2/n05_5d_f4.b2nd")["data"] if "..." in text else run["data"]
    execute(place.put(text), names)


def test_cargo_runs_every_example_of_rustdoc() -> None:
    examples = [piece for piece in everything() if piece.document.endswith(".rs") and piece.language != "sh"]
    assert len(examples) >= 9
    # Not one that is marked as text, or not to be run.
    assert [f"{piece}: {piece.language}" for piece in examples if piece.language != "rustdoc"] == []
