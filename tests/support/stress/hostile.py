"""Hostile files: the broken ones of tests/data and shapes made here that cost far more than their bytes.

Whatever a file says, each command ends with exit code 0 or 1 within its memory and its disk space, and a mount of it
answers.
"""

import os
import struct
import subprocess
import sys
import threading
import time
import zlib

from common import MIB, Mount

CACHE, SPILL = 16 * MIB, 64 * MIB
# cache=, one worker's piece, and the fixed allowance.
MEMORY = CACHE + 64 * MIB + 64 * MIB
# Seconds on the processor for what costs metadata only; seconds by the clock for any command, and for reading the two
# ends of every file in a mount.
QUICK, LIMIT, ENDS = 5, 40, 120

# Reads the first and the last page of the first files of each folder, in a process that can be killed. A folder may
# have hundreds of millions of entries.
READ_ENDS = """
import itertools, os, sys
folders, done = [sys.argv[1]], 0
while folders and done < 300:
    folder = folders.pop()
    try:
        with os.scandir(folder) as entries:
            entries = list(itertools.islice(entries, 50))
    except OSError:
        continue
    folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for entry in entries:
        done += 1
        try:
            size = entry.stat(follow_symlinks=False).st_size
            fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
            os.pread(fd, 4096, 0)
            os.pread(fd, 4096, max(0, size - 4096))
            os.close(fd)
        except OSError:
            pass
"""


def fzm(stages, buffers, payload, size):
    """An FZM 3.1 file with right checksums."""
    tables = b"".join(stages) + b"".join(buffers)
    core = struct.pack("<IHHQQQIHH4QII", 0x464D5A32, 0x0301, len(buffers), size, len(payload), 80 + len(tables),
                       len(stages), 1, 3, size, 0, 0, 0, zlib.crc32(payload), 0)
    crc = zlib.crc32(core + tables)
    return core[:76] + struct.pack("<I", crc) + tables + payload


def stage(kind, inputs, outputs, config):
    """An entry of its table of stages."""
    def slots(ids):
        return struct.pack("<8H", *(ids + [0xFFFF] * (8 - len(ids))))
    head = struct.pack("<HHBBH", kind, 1, len(inputs), len(outputs), 0)
    return head + slots(inputs) + slots(outputs) + config.ljust(128, b"\0") + struct.pack("<I", len(config)) + bytes(84)


def buffer(kind, number, size, config):
    """An entry of its table of buffers."""
    text = struct.pack("<HHBBH", kind, 1, 0, 0, number) + b"output".ljust(64, b"\0")
    text += struct.pack("<QQQQ", size, size, size, 0) + config.ljust(128, b"\0") + struct.pack("<I", len(config))
    return text.ljust(256, b"\0")


def fzm_store(elements):
    """Runs of one value below a Lorenzo of rank 2, which is inverted whole: `elements` times 4 bytes in a store."""
    runs = []
    left = elements
    while left:
        runs.append(min(left, 0xFFFF_FFFF))
        left -= runs[-1]
    count = len(runs)
    payload = struct.pack(f"<I{count}I{count}I", count, *[7] * count, *runs)
    lorenzo, rle = struct.pack("<BBHIII", 6, 2, 0, elements // 4, 4, 0), bytes([6])
    stages = [stage(12, [9], [1], lorenzo), stage(5, [1], [2], rle)]
    return fzm(stages, [buffer(5, 2, len(payload), rle)], payload, elements * 4)


def fzm_partition(symbols):
    """Huffman partitions of 16 MiB of one symbol below a bit pack: each byte of the code gives 32 decoded ones."""
    part = 16 * MIB
    parts = -(-symbols // part)
    numbers = 128 + 257
    numbers += -numbers % 4
    ends = (numbers, numbers + 4 * parts, numbers + 8 * parts)
    payload = struct.pack("<HHIIIQQQ6I", 1, 0, part, parts, 0, symbols, 0, 0, 0, 128, *ends[:2], ends[2], ends[2])
    payload = (payload.ljust(128, b"\0") + bytes(256) + b"\x55").ljust(ends[2], b"\0")
    pack, huffman = struct.pack("<BBQ", 2, 1, symbols * 8), struct.pack("<BHQ", 0, 1, symbols)
    stages = [stage(7, [9], [1], pack), stage(6, [1], [2], huffman)]
    return fzm(stages, [buffer(6, 2, len(payload), huffman)], payload, symbols * 32)


def zstd_zeros(size):
    """A Zstandard frame of `size` zeros, 4 bytes for each 128 KiB."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\xc0\x38") + struct.pack("<Q", size)
    while size >= 0:
        block = min(size, 128 << 10)
        size -= block
        last = size == 0
        frame += (block << 3 | 2 | last).to_bytes(3, "little") + b"\0"
        if last:
            break
    return bytes(frame)


def cbor(value):
    """CBOR of texts, numbers, lists and dictionaries."""
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        width = next(width for width in range(4) if number < 1 << (8 << width))
        return bytes([major << 5 | 24 + width]) + number.to_bytes(1 << width, "big")
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())


def ztensor_rows(rows):
    """Compressed sparse rows, a good many of them and all empty."""
    frame = zstd_zeros(rows + 1)
    part = {"dtype": "u8", "offset": 64, "length": len(frame), "encoding": "zstd", "uncompressed_length": rows + 1}
    at = 64 + len(frame)
    at += -at % 64
    empty = {"offset": at, "length": 0}
    tensor = {"shape": [rows, 4], "format": "sparse_csr",
              "components": {"values": {"dtype": "f32", **empty}, "indices": {"dtype": "u32", **empty}, "indptr": part}}
    manifest = cbor({"version": "1.2.0", "objects": {"t": tensor}})
    body = (b"ZTEN1000".ljust(64, b"\0") + frame).ljust(at, b"\0")
    return body + manifest + struct.pack("<Q", len(manifest)) + b"ZTEN1000"


def shapes(folder):
    """Makes the shapes; their files."""
    made = {"store-2G.fzm": fzm_store(1 << 29), "store-256M.fzm": fzm_store(1 << 26),
            "partition-2G.fzm": fzm_partition(64 * MIB), "partition-64M.fzm": fzm_partition(2 * MIB),
            "zeros-1G.zst": zstd_zeros(1 << 30), "zeros-4G.zst": zstd_zeros(1 << 32),
            "rows-256M.zt": ztensor_rows(1 << 28), "rows-2M.zt": ztensor_rows(1 << 21)}
    for name, data in made.items():
        (folder / name).write_bytes(data)
    fifo = folder / "fifo.b2frame"
    fifo.mkdir()
    os.mkfifo(fifo / "chunks.b2frame")
    return [folder / name for name in made] + [fifo]


def run(stress, row, _):
    """All commands and a mount over every hostile file."""
    folder = stress.folder("hostile")
    disk = stress.folder("spill")
    made = shapes(folder)
    broken = [path for path in sorted((stress.data / "broken").rglob("*")) if path.is_file()]
    for name in ("fzm", "blosc2", "zxc", "ztensor", "zstd", "tar"):
        broken += sorted(path for path in (stress.data / name / "bad").glob("*") if path.suffix != ".json")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256M", "none", disk], check=False).returncode == 0
    try:
        todo = []
        while stress.is_time():
            todo = todo or stress.random.sample(broken, len(broken)) + made
            attack(stress, row, todo.pop(), disk if mounted else None)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", disk], check=False)


def attack(stress, row, file, disk):
    """One file."""
    env = {"TMPDIR": str(disk)} if disk else {}
    options = f"cache={CACHE},spill={SPILL},threads=1"
    with Watched(row, disk, file):
        for words in (["info"], ["ls", "-R"], ["verify"]):
            ran = stress.run(*words, "-o", options, file, limit=LIMIT, env=env)
            row.count(runs=1, refused=int(ran.code != 0), peak=ran.peak, took=ran.took)
            line = f"{' '.join(words)} -o {options} {file}"
            if ran.peak > MEMORY:
                row.fault(f"{line}: {ran.peak >> 20} MiB of memory")
            # A file may honestly be large: `verify` is told to end, and ends.
            if words != ["verify"] and (not ran.ended or ran.work > QUICK) or ran.took > LIMIT + 8:
                row.fault(f"{line}: {ran.took:.0f} s, {ran.work:.0f} of them on the processor")
            elif ran.ended and ran.code not in (0, 1):
                row.fault(f"{line}: ended by {ran.code}: {ran.line()[:200]}")
        with Mount(stress, row, file, options, env=env, limit=30) as mount:
            if not mount.ran.ended:
                row.fault(f"mount -o {options} {file}: hangs")
            if not mount.ok:
                row.count(refused=1)
                return
            began = time.monotonic()
            try:
                subprocess.run([sys.executable, "-c", READ_ENDS, mount.point], timeout=ENDS, check=False)
            except subprocess.TimeoutExpired:
                row.fault(f"{file}, mounted: the ends of its files were not read in {ENDS} s")
            row.count(runs=1, took=time.monotonic() - began)
            if not mount.is_alive():
                row.fault(f"{file}: the daemon died")
            elif mount.peak() > MEMORY:
                row.fault(f"{file}, mounted with {options}: {mount.peak() >> 20} MiB of memory")


class Watched:
    """Looks how much of the disk is used meanwhile."""

    def __init__(self, row, disk, file):
        self.row, self.disk, self.file, self.most, self.over = row, disk, file, 0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.over.wait(0.05):
            stat = os.statvfs(self.disk)
            self.most = max(self.most, (stat.f_blocks - stat.f_bfree) * stat.f_frsize)

    def __enter__(self):
        if self.disk:
            self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        if self.disk:
            self.thread.join()
            # The memory of one command and that of the next one may overlap for a moment.
            if self.most > SPILL + MIB:
                self.row.fault(f"{self.file}: {self.most >> 20} MiB of disk space, with spill={SPILL >> 20}M")
