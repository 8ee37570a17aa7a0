"""Measures mounts of directories: directory.py PROGRAM RATIOS FOLDER [WORD...]

A directory of 100,000 containers, one of 1,000,000 files, a prefix of S3 with 100,000 keys on a server of its own, how
soon changes are seen, and files that are passed through, beside the least that a passthrough does (which RATIOS has).
FOLDER gets the files. A part is measured if its name holds one of the WORDs: containers, files, prefix, changes,
passed. FZMFS_BENCH_FILES=10000 makes the directories smaller. FZMFS_BENCH_TABLE names a file that gets each row.
"""

from __future__ import annotations

import bisect
import contextlib
import http.server
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import xml.sax.saxutils

PROGRAM, RATIOS, FOLDER = (os.path.abspath(path) for path in sys.argv[1:4])
WORDS = sys.argv[4:]
CONTAINERS = int(os.environ.get("FZMFS_BENCH_FILES", "100000"))
FILES = 10 * CONTAINERS
ROUNDS = int(os.environ.get("FZMFS_BENCH_ROUNDS", "5"))
# A Zstandard frame with one raw block, and what is in it.
DECODED = bytes(range(200))
CONTAINER = b"\x28\xb5\x2f\xfd\x20" + bytes([200]) + (200 << 3 | 1).to_bytes(3, "little") + DECODED


def row(what: str, measured: str, against: str = "", aim: str = "", ratio: str = "") -> None:
    print(f"{what:<62} {measured:>16} {against:>16} {ratio:>8}  {aim}", flush=True)
    if table := os.environ.get("FZMFS_BENCH_TABLE"):
        with open(table, "a", encoding="ascii") as file:
            file.write("\t".join((what, measured, against, ratio, aim)) + "\n")


def milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ms"


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Mount:
    """A mount of SOURCE, its daemon, and how long mounting took."""

    def __init__(self, source: str, *options: str) -> None:
        self.point = tempfile.mkdtemp()
        command = [PROGRAM, "mount", source, self.point, *(word for option in options for word in ("-o", option))]
        self.seconds = seconds(lambda: subprocess.run(command, check=True))
        listed = subprocess.run([PROGRAM, "list", "--json"], check=True, capture_output=True, text=True).stdout
        # A document for each mount.
        mounts = json.loads(listed) if listed.startswith("[") else [json.loads(line) for line in listed.splitlines()]
        self.daemon = next(mount["pid"] for mount in mounts if mount["mountpoint"] == self.point)

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([PROGRAM, "umount", self.point], check=True)
        os.rmdir(self.point)

    def memory(self, what: str = "VmRSS") -> str:
        with open(f"/proc/{self.daemon}/status", encoding="ascii") as file:
            kibibytes = re.search(what + r":\s+(\d+)", file.read())[1]
        return f"{int(kibibytes) / 1024:.1f} MiB"

    @contextlib.contextmanager
    def opened(self, names: list[str]):
        """Adds the names that the daemon opens while the block runs."""
        with tempfile.NamedTemporaryFile("r") as log:
            command = ["strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", log.name, "-p", str(self.daemon)]
            with subprocess.Popen(command) as tracer:
                time.sleep(1)
                yield
                time.sleep(0.5)
                tracer.terminate()
            names += [match[1] for match in re.finditer(r'open\w*\([^"]*"([^"]*)"', log.read())]


def fill(name: str, count: int, suffix: str, content: bytes) -> str:
    """A directory with COUNT files."""
    folder = os.path.join(FOLDER, name)
    if not os.path.isdir(folder):
        os.makedirs(folder + ".part", exist_ok=True)
        directory = os.open(folder + ".part", os.O_RDONLY)
        for number in range(count):
            file = os.open(f"{number:07}{suffix}", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
            os.write(file, content)
            os.close(file)
        os.close(directory)
        os.rename(folder + ".part", folder)
    return folder


def listing(mount: Mount, count: int, what: str) -> None:
    row(f"{what}: memory of the idle daemon", mount.memory(), aim="<= 64 MiB")
    names: list[str] = []
    with mount.opened(names):
        assert len(os.listdir(mount.point)) == count
    row("  files that the top listing opens", f"{len([name for name in names if name != '.'])}", aim="0")
    time.sleep(2)
    for name, work in (
        ("names", lambda: len(os.listdir(mount.point))),
        ("names and attributes", lambda: sum(1 for entry in os.scandir(mount.point) if entry.stat())),
    ):
        row(f"  listing: {name}", f"{seconds(work):.2f} s")
    row("  memory afterwards, and most", mount.memory(), mount.memory("VmHWM"))


def containers() -> None:
    many, alone = fill("many", CONTAINERS, ".zst", CONTAINER), fill("alone", 1, ".zst", CONTAINER)
    times = []
    for _ in range(ROUNDS):
        with Mount(many) as mount:
            times.append(mount.seconds)
    row(f"{CONTAINERS} containers: mount", milliseconds(times), aim="<= 50 ms")

    def first(folder: str, number: int) -> float:
        with Mount(folder) as mount:
            def read() -> None:
                with open(f"{mount.point}/{number:07}.zst/data.raw", "rb") as file:
                    assert file.read() == DECODED
            return seconds(read)

    one = [first(many, (step * 7919) % CONTAINERS) for step in range(3 * ROUNDS)]
    other = [first(alone, 0) for _ in range(3 * ROUNDS)]
    row("  the first read of one, and alone", milliseconds(one), milliseconds(other), "<= 10 ms more")
    with Mount(many) as mount:
        listing(mount, CONTAINERS, f"{CONTAINERS} containers")


def files() -> None:
    folder = fill("files", FILES, ".txt", b"")
    with Mount(folder) as mount:
        row(f"{FILES} files: mount", f"{mount.seconds * 1e3:.1f} ms")
        listing(mount, FILES, f"{FILES} files")


class Bucket(http.server.BaseHTTPRequestHandler):
    """A bucket of S3 with containers in one directory: lists by pages, ranges of objects."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are written one after the other
    keys = [f"p/{number:07}.zst" for number in range(CONTAINERS)]
    lists = objects = 0

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if "list-type" not in query:
            Bucket.objects += 1
            first, last = map(int, re.search(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
            body = CONTAINER[first : last + 1]
            said = ("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(CONTAINER)}")
            return self.answer(206, body, said, ("ETag", '"e"'), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"))
        Bucket.lists += 1
        prefix, most = query.get("prefix", ""), int(query.get("max-keys", "1000"))
        begin = bisect.bisect_left(self.keys, query.get("continuation-token", prefix))
        out, at = [], begin
        while at < len(self.keys) and len(out) < most and self.keys[at].startswith(prefix):
            key = self.keys[at]
            slash = key.find("/", len(prefix))
            if slash >= 0:
                inside = key[: slash + 1]
                out.append(f"<CommonPrefixes><Prefix>{inside}</Prefix></CommonPrefixes>")
                at = bisect.bisect_left(self.keys, inside + "\uffff")
                continue
            out.append(
                f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><LastModified>1994-11-06T08:49:37.000Z"
                f"</LastModified><ETag>&quot;e&quot;</ETag><Size>{len(CONTAINER)}</Size></Contents>"
            )
            at += 1
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        token = f"<NextContinuationToken>{self.keys[at]}</NextContinuationToken>" if more else ""
        body = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(out)}"
        self.answer(200, f"<ListBucketResult>{body}</ListBucketResult>".encode())


def counted(work) -> tuple[float, int, int]:
    Bucket.lists = Bucket.objects = 0
    return seconds(work), Bucket.lists, Bucket.objects


def prefix() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_address[1]}", AWS_REGION="us-east-1",
        AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret", NO_PROXY="127.0.0.1",
    )
    url, stem = "s3://bucket/p/", f"{CONTAINERS // 2:07}"
    for layout in ("replace", "beside", "flat"):
        Bucket.lists = 0
        with Mount(url, f"layout={layout}") as mount:
            row(f"{CONTAINERS} keys, {layout}: mount", f"{mount.seconds * 1e3:.1f} ms, {Bucket.lists} lists")
            names = {"flat": f"{stem}.raw", "beside": f"{stem}.zst.d/data.raw", "replace": f"{stem}.zst/data.raw"}
            shown = names[layout]
            taken, lists, objects = counted(lambda: os.stat(f"{mount.point}/{shown}"))
            row("  stat of a file in one of them", f"{taken * 1e3:.1f} ms", f"{lists} lists", f"{objects} objects")
            if layout == "flat" and CONTAINERS > 10000:
                # Each container is opened, to say what is in it.
                continue
            taken, lists, _ = counted(lambda: next(os.scandir(mount.point)))
            row("  the first names", f"{taken * 1e3:.1f} ms", f"{lists} lists")
            taken, lists, objects = counted(lambda: len(os.listdir(mount.point)))
            row("  all names", f"{taken:.2f} s", f"{lists} lists", f"{objects} objects")
            row("  memory afterwards, and most", mount.memory(), mount.memory("VmHWM"))
    for command in ("ls", "verify"):
        def work() -> None:
            subprocess.run([PROGRAM, command, url], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        taken, lists, objects = counted(work)
        row(f"{CONTAINERS} keys: fzmfs {command}", f"{taken:.1f} s", f"{lists} lists", f"{objects} objects")
    server.shutdown()


def changes() -> None:
    folder = fill("changing", 0, "", b"")
    path = os.path.join(folder, "x.txt")
    times: dict[str, list[float]] = {"new": [], "changed": [], "removed": []}

    def write(text: str) -> None:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def content(path: str) -> str | None:
        try:
            with open(path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return None

    with Mount(folder) as mount:
        shown = os.path.join(mount.point, "x.txt")
        for number in range(2 * ROUNDS):
            for what, change, want in (
                ("new", lambda: write("old"), "old"),
                ("changed", lambda: write(f"new {number}"), f"new {number}"),
                ("removed", lambda: os.remove(path), None),
            ):
                # The kernel has just asked.
                content(shown)
                change()
                start = time.perf_counter()
                while content(shown) != want:
                    time.sleep(0.001)
                times[what].append(time.perf_counter() - start)
    for what, found in times.items():
        row(f"a {what} file is seen after", f"{statistics.median(found):.3f} s", f"{max(found):.3f} s", "<= 1 s")


def passed() -> None:
    size, folder = 1 << 30, os.path.join(FOLDER, "passed")
    path = os.path.join(folder, "x.bin")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        os.sync()
    buffer = bytearray(1 << 20)

    def read(path: str) -> float:
        def work() -> None:
            with open(path, "rb", buffering=0) as file:
                assert sum(iter(lambda: file.readinto(buffer), 0)) == size
        return seconds(work)

    def drop() -> None:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @contextlib.contextmanager
    def least():
        """The least that a passthrough does."""
        point = tempfile.mkdtemp()
        with subprocess.Popen([RATIOS, "passthrough", "0", str(size), path, point]) as server:
            while not os.path.exists(f"{point}/000000.raw"):
                time.sleep(0.01)
            yield f"{point}/000000.raw"
            subprocess.run(["umount", point], check=True)
            server.wait()
        os.rmdir(point)

    @contextlib.contextmanager
    def ours():
        with Mount(folder) as mount:
            yield f"{mount.point}/x.bin"

    @contextlib.contextmanager
    def itself():
        yield path

    states = ("nothing cached", "the file cached", "all cached")
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name, side in (("ours", ours), ("least", least), ("itself", itself)):
            for state in states[:2]:
                drop() if state == states[0] else read(path)
                with side() as shown:
                    times.setdefault((name, state), []).append(read(shown))
                    if state == states[1]:
                        times.setdefault((name, states[2]), []).append(read(shown))
    for state in states:
        rate = {name: size / statistics.median(times[name, state]) / 1e9 for name in ("ours", "least", "itself")}
        for other, what in (("least", "a trivial passthrough"), ("itself", "the file itself")):
            row(f"a passed file of 1 GiB, {state} / {what}", f"{rate['ours']:.2f} GB/s", f"{rate[other]:.2f} GB/s",
                ratio=f"{rate['ours'] / rate[other]:.2f}")


os.makedirs(FOLDER, exist_ok=True)
for part in (containers, files, prefix, changes, passed):
    if not WORDS or any(word in part.__name__ for word in WORDS):
        part()
