"""Measures mounts of Zstandard files and tar archives beside ratarmount: archives.py PROGRAM RATARMOUNT FOLDER [WORD...]

Rows: mount, first listing, a million members, tail, random reads in one frame, in frames of pzstd and in seekable ones,
one member of 10,000, SQLite, grep, four readers at once; then the most memory of each daemon. Each is measured without
an index of an earlier mount, and those that gain by one also with it ("again"). `zstd -dc` and `tar` stand beside what
they can do too, and in rows of their own beside the command of fzmfs that does the same without a mount. FOLDER gets the
files, FZMFS_BENCH_MIB of text (256). A part is measured if its name holds one of the WORDs: frames, tar, million, sqlite.
FZMFS_BENCH_ROUNDS sets the rounds (3), FZMFS_BENCH_MEMBERS the members (1,000,000). ratarmount keeps next to nothing that
it has decoded; fzmfs gets the `cache=` in CACHES, one for a part, or that of FZMFS_BENCH_OPTIONS, which are more options.
FZMFS_BENCH_TABLE names a file that gets each row.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import sqlite3
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable

PROGRAM, RATARMOUNT = (os.path.abspath(path) for path in sys.argv[1:3])
FOLDER = pathlib.Path(sys.argv[3]).absolute()
WORDS = sys.argv[4:]
MIB = int(os.environ.get("FZMFS_BENCH_MIB", "256"))
ROUNDS = int(os.environ.get("FZMFS_BENCH_ROUNDS", "3"))
MEMBERS = int(os.environ.get("FZMFS_BENCH_MEMBERS", "1000000"))
OPTIONS = os.environ.get("FZMFS_BENCH_OPTIONS", "")
# Random reads in long frames gain by what is kept; a walk over members does not.
CACHES = {"frames": "cache=8M", "tar": "cache=2M", "million": "cache=2M", "sqlite": "cache=16M"}
READS = 200
QUERIES = 1000
POINT, INDEX = FOLDER / "mount", FOLDER / "index"
NULL = subprocess.DEVNULL


def row(what: str, ours: list[float], theirs: list[float], other: str = "") -> None:
    ours_, theirs_ = statistics.median(ours), statistics.median(theirs)
    line = f"{what}\t{ours_:.3f} s\t{theirs_:.3f} s\t{theirs_ / ours_:.2f} x\t{other}"
    print("{:<58} {:>10} {:>10} {:>9}  {}".format(*line.split("\t")), flush=True)
    if table := os.environ.get("FZMFS_BENCH_TABLE"):
        with open(table, "a", encoding="ascii") as file:
            file.write(line + "\n")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Mount:
    """A mount by one of the two programs, which has kept nothing of earlier ones unless it is made `again`."""

    peaks: dict[str, float] = {}
    options = ""

    def __init__(self, program: str, source: pathlib.Path, again: bool = False) -> None:
        self.program, self.source = program, source
        if not again:
            forget(source)
        if program == PROGRAM:
            command = [PROGRAM, "mount", "-o", f"index={INDEX},{Mount.options}", source, POINT]
        else:
            command = [RATARMOUNT, source, POINT]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=NULL, stderr=NULL)
        os.listdir(POINT)
        self.seconds = time.perf_counter() - start

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(POINT) in words and pid != os.getpid():
                    status = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                    peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
                    self.peaks[self.program] = max(self.peaks.get(self.program, 0), peak)
            except (OSError, StopIteration):
                continue
        subprocess.run(["fusermount3", "-u", POINT], check=True)
        while any(str(POINT) == line.split()[4] for line in open("/proc/self/mountinfo")):
            time.sleep(0.01)

    def path(self, ours: str, theirs: str) -> pathlib.Path:
        return POINT / (ours if self.program == PROGRAM else theirs)


def forget(source: pathlib.Path) -> None:
    shutil.rmtree(INDEX, ignore_errors=True)
    for index in source.parent.glob(source.name + ".index.sqlite*"):
        index.unlink()


def compare(
    what: str,
    source: pathlib.Path,
    work: Callable[[Mount], object],
    again: bool = False,
    other: tuple[str, Callable[[], object]] | None = None,
) -> None:
    """One row: mounting and `work`, by turns, by both programs; then the same on a second mount, if `again`."""
    for second in (False, True)[: 1 + again]:
        times: dict[str, list[float]] = {PROGRAM: [], RATARMOUNT: []}
        for program in times:
            if second:
                with Mount(program, source) as mount:
                    work(mount)
            for _ in range(ROUNDS):
                start = time.perf_counter()
                with Mount(program, source, again=second) as mount:
                    work(mount)
                    times[program].append(time.perf_counter() - start)
            forget(source)
        beside = ""
        if other and not second:
            beside = f"{other[0]} {statistics.median(seconds(other[1]) for _ in range(ROUNDS)):.3f} s"
        row(what + (", again" if second else ""), times[PROGRAM], times[RATARMOUNT], beside)


def compare_commands(what: str, source: pathlib.Path, ours: str, theirs: str) -> None:
    """Rows without a mount: `ours`, after the name of the program, and `theirs`, by turns; then `ours` with an index."""
    command = piped(f"{PROGRAM} {ours.replace(' ', f' --index {INDEX} ', 1)}")
    times: list[list[float]] = [[], [], []]
    for _ in range(max(ROUNDS, 5)):
        forget(source)
        for number, work in enumerate((command, piped(theirs), command)):
            times[number].append(seconds(work))
    forget(source)
    row(what, times[0], times[1], "of " + theirs.split()[0])
    row(what + ", again", times[2], times[1], "of " + theirs.split()[0])


def piped(command: str) -> Callable[[], object]:
    return lambda: subprocess.run(["bash", "-c", command], check=True, stdout=NULL)


def read(path: pathlib.Path) -> int:
    total = 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 20):
            total += len(part)
    return total


def at_random(path: pathlib.Path) -> None:
    size = os.stat(path).st_size
    places = random.Random(1)
    with open(path, "rb", buffering=0) as file:
        for _ in range(READS):
            assert len(os.pread(file.fileno(), 4096, places.randrange(size - 4096))) == 4096


def tail(path: pathlib.Path) -> None:
    with open(path, "rb", buffering=0) as file:
        file.seek(-1 << 20, os.SEEK_END)
        assert sum(len(part) for part in iter(lambda: file.read(1 << 20), b"")) == 1 << 20


def walk(path: pathlib.Path) -> int:
    """Counts files as `find -type f -size +0` does, with a stat of each."""
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                count += walk(pathlib.Path(entry.path))
            else:
                entry.stat(follow_symlinks=False)
                count += 1
    return count


def four(path: pathlib.Path) -> None:
    threads = [threading.Thread(target=read, args=(path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lines(mib: int) -> Iterable[bytes]:
    """Lines of a log, of `mib` MiB."""
    some = random.Random(1)
    levels = [b"INFO"] * 20 + [b"WARN"] * 3 + [b"ERROR"]
    left = mib << 20
    while left > 0:
        part = b"".join(
            b"2026-11-%02d %s worker-%d request %08x took %d us\n"
            % (some.randrange(1, 31), some.choice(levels), some.randrange(16), some.getrandbits(32), some.randrange(10**6))
            for _ in range(10000)
        )
        left -= len(part)
        yield part


def seekable(source: pathlib.Path, to: pathlib.Path, frame: int) -> None:
    """Frames of `frame` bytes, and the seek table of zstd's contrib/seekable_format."""
    table = b""
    with open(source, "rb") as file, open(to, "wb") as out:
        while part := file.read(frame):
            stored = subprocess.run(["zstd", "-q", "-3", "-c"], input=part, check=True, capture_output=True).stdout
            out.write(stored)
            table += struct.pack("<II", len(stored), len(part))
        table += struct.pack("<IBI", len(table) // 8, 0, 0x8F92EAB1)
        out.write(struct.pack("<II", 0x184D2A5E, len(table)) + table)


def member(name: str, content: bytes) -> bytes:
    """An entry of a tar archive, as GNU tar writes it."""
    head = bytearray(512)
    head[: len(name)] = name.encode()
    head[100:156] = b"0000644\0" b"0000000\0" b"0000000\0" + b"%011o\0" % len(content) + b"15000000000\0" + b" " * 8
    head[156:157] = b"0"
    head[257:265] = b"ustar  \0"
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content + bytes(-len(content) % 512)


def archive(to: pathlib.Path, members: Iterable[bytes]) -> None:
    with open(to, "wb") as out, subprocess.Popen(["zstd", "-q", "-3", "-c"], stdin=subprocess.PIPE, stdout=out) as zstd:
        assert zstd.stdin is not None
        for content in members:
            zstd.stdin.write(content)
        zstd.stdin.write(bytes(10240))
        zstd.stdin.close()
    assert zstd.returncode == 0


def frames() -> None:
    text = FOLDER / "log"
    with open(text, "wb") as file:
        file.writelines(lines(MIB))
    size = text.stat().st_size
    made = {name: FOLDER / f"{name}.zst" for name in ("one", "pzstd", "seekable")}
    subprocess.run(["zstd", "-q", "-3", text, "-o", made["one"]], check=True)
    subprocess.run(["pzstd", "-q", "-3", "-p", "2", text, "-o", made["pzstd"]], check=True)
    seekable(text, made["seekable"], 1 << 20)
    text.unlink()
    for name, file in made.items():

        def data(mount: Mount, name: str = name) -> pathlib.Path:
            path = mount.path("data.raw", name)
            assert os.stat(path).st_size == size
            return path

        compare(f"{name}: mount, stat", file, data, again=True)
        compare(f"{name}: tail -c 1M", file, lambda mount, data=data: tail(data(mount)), True, ("zstd -dc", piped(f"zstd -dc {file} | tail -c 1M")))
        compare(f"{name}: {READS} random reads of 4 KiB", file, lambda mount, data=data: at_random(data(mount)), True)
        compare_commands(f"{name}: fzmfs cat | tail -c 1M", file, f"cat {file} data.raw | tail -c 1M", f"zstd -dc {file} | tail -c 1M")
    one = made["pzstd"]
    count = lambda mount: subprocess.run(["grep", "-c", "ERROR", mount.path("data.raw", "pzstd")], check=True, stdout=NULL)  # noqa: E731
    compare("pzstd: grep -c ERROR", one, count, False, ("zstd -dc", piped(f"zstd -dc {one} | grep -c ERROR")))
    compare("pzstd: four readers at once", one, lambda mount: four(mount.path("data.raw", "pzstd")))
    compare("one: four readers at once", made["one"], lambda mount: four(mount.path("data.raw", "one")))


def tar() -> None:
    some, file = random.Random(2), FOLDER / "ten.tar.zst"
    content = b"".join(lines(1))
    part = lambda: content[(at := some.randrange(len(content) - 16384)) : at + 16384]  # noqa: E731
    archive(file, (member(f"run/{i // 100:03}/{i:05}.txt", part()) for i in range(10000)))
    compare("tar of 10,000: mount, list, stat", file, lambda mount: walk(members(mount)), True, ("tar", piped(f"tar -tvf {file}")))
    one = "run/077/07777.txt"
    whole = ("tar", piped(f"tar -xOf {file} {one}"))
    compare("tar of 10,000: one member", file, lambda mount: read(members(mount) / one), True, whole)
    compare_commands("tar of 10,000: fzmfs ls -lR", file, f"ls -lR {file}", f"tar -tvf {file}")
    compare_commands("tar of 10,000: fzmfs cat, one member", file, f"cat {file} {file.stem}/{one}", f"tar -xOf {file} {one}")


def members(mount: Mount) -> pathlib.Path:
    """Where a mount shows the members."""
    return mount.path(mount.source.stem, "")


def million() -> None:
    file = FOLDER / "million.tar.zst"
    archive(file, (member(f"{i // 1000:04}/{i:07}", b"%d\n" % i) for i in range(MEMBERS)))

    def all_(mount: Mount) -> None:
        assert walk(members(mount)) == MEMBERS

    global ROUNDS
    rounds, ROUNDS = ROUNDS, 1
    compare(f"tar of {MEMBERS:,}: mount, list, stat", file, all_, True, ("tar", piped(f"tar -tvf {file}")))
    ROUNDS = rounds
    compare_commands(f"tar of {MEMBERS:,}: fzmfs ls -lR", file, f"ls -lR {file}", f"tar -tvf {file}")


def sqlite() -> None:
    plain, file = FOLDER / "x.db", FOLDER / "x.db.zst"
    some, rows = random.Random(3), MIB * 8000
    with sqlite3.connect(plain) as base:
        base.execute("create table t (id integer primary key, name text, value real)")
        base.executemany("insert into t values (?, ?, ?)", ((i, f"sample {some.getrandbits(200):x}", some.random()) for i in range(rows)))
    base.close()
    subprocess.run(["pzstd", "-q", "-3", "-p", "2", plain, "-o", file], check=True)
    plain.unlink()

    def base_of(mount: Mount) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{mount.path('data.raw', 'x.db')}?immutable=1", uri=True)

    def scan(mount: Mount) -> None:
        with base_of(mount) as base:
            assert base.execute("select count(*), sum(value) from t where name like '%0'").fetchone()[0] > 0
        base.close()

    def queries(mount: Mount) -> None:
        with base_of(mount) as base:
            for _ in range(QUERIES):
                assert base.execute("select name from t where id = ?", (some.randrange(rows),)).fetchone()
        base.close()

    compare("sqlite: full scan", file, scan)
    compare(f"sqlite: {QUERIES:,} point queries", file, queries)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    POINT.mkdir(parents=True)
    print("{:<58} {:>10} {:>10} {:>9}".format("", "fzmfs", "ratarmount", "faster"))
    for part in (frames, tar, million, sqlite):
        if not WORDS or any(word in part.__name__ for word in WORDS):
            Mount.peaks.clear()
            # The last one of a name counts.
            Mount.options = ",".join(filter(None, [CACHES[part.__name__], OPTIONS]))
            print(f"{part.__name__}: {Mount.options}")
            part()
            ours, theirs = (Mount.peaks[program] for program in (PROGRAM, RATARMOUNT))
            print(f"{part.__name__ + ': most memory':<58} {ours:>7.0f} MiB {theirs:>7.0f} MiB {theirs / ours:>7.2f} x  aim 2", flush=True)


main()
