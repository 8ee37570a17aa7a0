"""Many readers over many mounts: every byte compared, in every way in which programs read."""

import mmap
import os
import random
import threading
import time

from common import MIB, Mount

# Mounts at a time, readers over them, and seconds until others are mounted.
MOUNTS, READERS, TURN = 11, 24, 20
MADV_POPULATE_READ = 22


def read_whole(path, want, _):
    """From the first to the last byte, the kernel's pages dropped before."""
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        got = bytearray()
        while block := os.read(file.fileno(), 100_000):
            got += block
    return bytes(got) == want, len(got)


def read_direct(path, want, dice):
    """Past the page cache, at places of no alignment."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return read_at(fd, want, dice)
    finally:
        os.close(fd)


def read_random(path, want, dice):
    """Here and there, past the end too."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_at(fd, want, dice)
    finally:
        os.close(fd)


def read_at(fd, want, dice):
    size = 0
    for _ in range(8):
        at, count = dice.randrange(len(want) + 5000), dice.choice((1, 4096, 30_000, MIB))
        got = os.pread(fd, count, at)
        size += len(got)
        right = want[at:at + count]
        if len(got) < len(right) and right.startswith(got):
            # What the system gives where a later part of the read failed.
            raise OSError("a short read")
        if got != right:
            return False, size
    return True, size


def read_mapped(path, want, dice):
    """Through a mapping; its pages are there before they are touched, as an error would be a signal."""
    if not want:
        return os.stat(path).st_size == 0, 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), len(want), prot=mmap.PROT_READ) as view:
        at = dice.randrange(len(want)) & -mmap.PAGESIZE
        size = min(200_000, len(want) - at)
        view.madvise(MADV_POPULATE_READ, at, size)
        return view[at:at + size] == want[at:at + size], size


def read_copied(path, want, _):
    """Copied by the kernel."""
    size = len(want)
    with open(path, "rb") as file, open(os.memfd_create("copy"), "r+b") as copy:
        while size and (done := os.sendfile(copy.fileno(), file.fileno(), None, size)):
            size -= done
        copy.seek(0)
        return copy.read() == want, len(want)


# Readers that always fail with an error, never with a signal.
ERRORS = (read_whole, read_direct, read_random, read_random, read_copied)
WAYS = (*ERRORS, read_mapped)


def readers(row, pairs, until, seed=0, count=READERS, may_fail=False):
    """Starts `count` threads that read `pairs`: paths, their bytes, and what they are. `join` waits for them."""

    def work(number):
        dice = random.Random(seed * 1000 + number)
        while not until():
            path, want, label = dice.choice(pairs)
            way = dice.choice(ERRORS if may_fail else WAYS)
            began = time.monotonic()
            try:
                right, size = way(path, want, dice)
                if os.stat(path).st_size != len(want):
                    row.fault(f"{label}: its size is {os.stat(path).st_size}, not {len(want)}")
            except (OSError, ValueError) as error:
                row.count(refused=1)
                if not may_fail:
                    row.fault(f"{way.__name__} {label}: {error}")
                time.sleep(0.01)
                continue
            row.count(runs=1, size=size, took=time.monotonic() - began)
            if not right:
                row.fault(f"{way.__name__} {label}: other bytes than cat gives")

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(row, threads, limit=60.0):
    """Waits for readers; those that do not come back are a fault."""
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    hung = sum(thread.is_alive() for thread in threads)
    if hung:
        row.fault(f"{hung} readers hang")
    return not hung


def run(stress, row, sources, options):
    """Groups of sources mounted together, read by all readers at once."""
    turn = 0
    while stress.is_time():
        turn += 1
        group = stress.random.sample(sources.small, MOUNTS - len(sources.large)) + sources.large
        mounts = [Mount(stress, row, source, options) for source in group]
        try:
            pairs = []
            for mount in mounts:
                if not mount.ok:
                    row.fault(f"mount {options} {mount.source}: {mount.ran.code} {mount.ran.line()}")
                    continue
                pairs += mount.pairs(sources)
            until = min(stress.end, time.monotonic() + TURN)
            if pairs:
                join(row, readers(row, pairs, lambda: time.monotonic() > until, turn))
        finally:
            for mount in mounts:
                mount.__exit__()
