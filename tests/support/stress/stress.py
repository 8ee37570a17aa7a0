"""The stress test: scripts/stress [SECONDS]. Bounded in time; prints a table; exit code 0 if nothing went wrong.

stress.py PROGRAM DATA WORK SECONDS [MAKE_FZM]: PROGRAM is fzmfs, DATA is tests/data, WORK an empty folder; MAKE_FZM
makes FZM files of any size.
"""

import hashlib
import os
import pathlib
import random
import struct
import subprocess
import sys

import doors
import faults
import hostile
import readers
import users
from common import MIB, Sources, Stress

HERE = pathlib.Path(__file__).parent

# Each part: its name, its share of the time, and its function.
PARTS = (
    ("readers, default options", 0.10, lambda *job: readers.run(*job, "")),
    ("readers, threads=1,cache=1M", 0.10, lambda *job: readers.run(*job, "threads=1,cache=1M")),
    ("several users, a lost and lying server", 0.10, users.run),
    ("all doors at once", 0.10, doors.run),
    ("changed sources", 0.08, faults.changes),
    ("errors of the disk", 0.08, faults.transient),
    ("kill, SIGTERM, umount under load", 0.08, faults.ends),
    ("small limits", 0.08, faults.limits),
    ("temporary files on a full disk", 0.04, faults.full),
    ("odd names", 0.02, faults.names),
    ("hostile files", 0.07, hostile.run),
)


def make_large(stress, make_fzm):
    """Files that do not fit a small cache: stored tensors, one long Zstandard frame and many, fields of FZM."""
    folder, dice = stress.folder("large"), random.Random(5)
    raw = b"".join(dice.randbytes(4000) + bytes(96) + b"text %d " % i * 200 for i in range(5000))
    part = {"dtype": "u8", "offset": 64, "length": len(raw), "digest": "sha256:" + hashlib.sha256(raw).hexdigest()}
    tensor = {"shape": [len(raw)], "format": "dense", "components": {"data": part}}
    manifest = hostile.cbor({"version": "1.1.0", "objects": {"t": tensor}})
    (folder / "tensor.zt").write_bytes(
        b"ZTEN1000".ljust(64, b"\0") + raw + manifest + struct.pack("<Q", len(manifest)) + b"ZTEN1000")
    made = [folder / "tensor.zt"]
    try:
        compress = lambda data: subprocess.run(["zstd", "-qc3"], input=data, capture_output=True, check=True).stdout
        (folder / "one.zst").write_bytes(compress(raw))
        (folder / "many.zst").write_bytes(b"".join(compress(raw[at:at + MIB]) for at in range(0, len(raw), MIB)))
        made += [folder / "one.zst", folder / "many.zst"]
    except FileNotFoundError:
        stress.skip("large Zstandard files", "no zstd")
    if make_fzm:
        for name, shape, stages in (("chain", "4096x2048", "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze"),
                                    ("huffman", "64x256x256", "lorenzo_quant:eb=1e-2,radius=512,zigzag=1,huffman")):
            out = folder / f"{name}.fzm"
            command = [make_fzm, "--shape", shape, "--stages", stages, out]
            ran = subprocess.run(command, capture_output=True, check=False)
            if ran.returncode == 0:
                made.append(out)
            else:
                stress.skip(f"large FZM file {name}", ran.stderr.decode().strip())
    else:
        stress.skip("large FZM files", "no make-fzm")
    return made


def build_shim(stress):
    """The library below the program that makes its reads fail; without a C compiler there is none."""
    shim = stress.work / "shim.so"
    built = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, HERE / "shim.c", "-ldl"], capture_output=True,
                           check=False)
    return shim if built.returncode == 0 else None


def main():
    program, data, work, seconds, *make_fzm = sys.argv[1:]
    if not faults.is_root():
        sys.exit("stress: needs root and /dev/fuse")
    stress = Stress(os.path.abspath(program), os.path.abspath(data), work, float(seconds))
    stress.shim = build_shim(stress)
    row = stress.part("cat and extract, against the manifests", 0.15)
    sources = Sources(stress, row)
    sources.large = make_large(stress, *make_fzm)
    sources.prepare()
    sources.check_manifests()
    chosen = [part for part in PARTS if os.environ.get("STRESS_PART", "") in part[0]]
    if not chosen:
        sys.exit("stress: STRESS_PART is in the name of no part: " + "; ".join(name for name, *_ in PARTS))
    longer = sum(share for _, share, _ in PARTS) / sum(share for _, share, _ in chosen)
    for what, share, part in chosen:
        part(stress, stress.part(what, share * longer), sources)
    well = stress.table()
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
