"""What the parts of the stress test share: the table, runs of the program, and mounts that are always taken down."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

MIB = 1 << 20


class Row:
    """A line of the table: what was done, and what came of it."""

    def __init__(self, what):
        self.what, self.runs, self.bytes, self.refused, self.faults = what, 0, 0, 0, 0
        self.peak, self.longest = 0, 0.0
        self.lock = threading.Lock()

    def count(self, runs=0, size=0, refused=0, peak=0, took=0.0):
        """Adds runs, bytes that were compared and answers that were errors; keeps the largest of the others."""
        with self.lock:
            self.runs += runs
            self.bytes += size
            self.refused += refused
            self.peak, self.longest = max(self.peak, peak), max(self.longest, took)

    def fault(self, text):
        """Something that must never be."""
        with self.lock:
            self.faults += 1
            if self.faults <= 20:
                print(f"FAULT {self.what}: {text}", flush=True)


class Ran:
    """What a run of the program came to."""

    def __init__(self, said, out, err, ended):
        self.code, self.peak, self.took, self.work = said["code"], said["peak"], said["took"], said["work"]
        self.out, self.err = out, err
        # Whether it ended by itself.
        self.ended = ended

    def line(self):
        """Its message."""
        return self.err.decode(errors="replace").strip()


class Stress:
    """The program, the folders, the time and the table."""

    def __init__(self, program, data, work, seconds):
        self.program, self.data, self.work = program, pathlib.Path(data), pathlib.Path(work)
        self.rows, self.skipped = [], []
        self.start, self.seconds, self.end = time.monotonic(), seconds, 0.0
        self.seed = int(os.environ.get("STRESS_SEED") or time.time())
        self.random = random.Random(self.seed)
        self.shim = None
        # Before this process is large.
        self.runner = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("runner.py")], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0

    def part(self, what, share):
        """Begins a part of the test that takes `share` of all the time."""
        self.end = time.monotonic() + self.seconds * share
        self.rows.append(Row(what))
        print(f"-- {what}", flush=True)
        return self.rows[-1]

    def is_time(self):
        """Whether the part that was begun last may go on."""
        return time.monotonic() < self.end

    def skip(self, what, why):
        """Says that something cannot be tried here."""
        self.skipped.append(f"SKIPPED {what}: {why}")

    def folder(self, name="m"):
        """A new, empty folder."""
        self.number += 1
        path = self.work / f"{name}{self.number}"
        path.mkdir()
        return path

    def run(self, *args, limit=60, rlimits=(), env=None):
        """Runs the program to its end; after `limit` seconds it is told to end."""
        out, err = self.work / "out", self.work / "err"
        request = {"args": [self.program, *map(os.fspath, args)], "limit": limit, "rlimits": list(rlimits),
                   "env": env or {}, "out": str(out), "err": str(err)}
        self.runner.stdin.write(json.dumps(request) + "\n")
        self.runner.stdin.flush()
        said = json.loads(self.runner.stdout.readline())
        return Ran(said, out.read_bytes(), err.read_bytes(), said["took"] < limit)

    def table(self):
        """Prints the table; whether there was no fault."""
        head = ("what", "runs", "MiB", "refused", "peak MiB", "longest s", "faults")
        lines = [(r.what, str(r.runs), str(r.bytes >> 20), str(r.refused), str(r.peak >> 20), f"{r.longest:.1f}",
                  str(r.faults)) for r in self.rows]
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        for line in [head, *lines]:
            cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
            print("  ".join(cells).rstrip())
        for line in self.skipped:
            print(line)
        faults = sum(row.faults for row in self.rows)
        verdict = f"{faults} FAULTS" if faults else "all well"
        print(f"{time.monotonic() - self.start:.0f} s, STRESS_SEED={self.seed}: {verdict}")
        return not faults


class Mount:
    """A mount, taken down at the end of a `with`; `ok` says whether it was made, `ran` what the program said."""

    def __init__(self, stress, row, source, options="", point=None, **how):
        self.stress, self.row, self.source = stress, row, source
        self.point = point or stress.folder()
        words = ["-o", options] if options else []
        self.ran = stress.run("mount", *words, source, self.point, **how)
        self.ok = self.ran.code == 0
        self.pid = None
        if self.ok:
            # In a process of its own: a mount that does not answer must not hold this one.
            name = ["getfattr", "--only-values", "--absolute-names", "-n", "user.fzmfs.daemon.pid", self.point]
            try:
                self.pid = int(subprocess.run(name, capture_output=True, timeout=20, check=True).stdout)
            except (subprocess.SubprocessError, ValueError):
                row.fault(f"mount {options} {source} returned 0 and does not answer")

    def __enter__(self):
        return self

    def pairs(self, sources):
        """Its files: path, bytes and what they are."""
        views = sources.contents(self.source)
        return [(self.point / name, want, f"{self.source} {name}") for name, want in views.items()]

    def is_there(self):
        """Whether the kernel's list has it."""
        return f" {self.point} " in pathlib.Path("/proc/self/mountinfo").read_text()

    def is_alive(self):
        """Whether the daemon runs."""
        try:
            return "State:\tZ" not in pathlib.Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False

    def peak(self):
        """The most memory that the daemon has had."""
        try:
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)

    def signal(self, name):
        """Sends the daemon a signal."""
        if self.pid and self.is_alive():
            os.kill(self.pid, getattr(signal, name))

    def __exit__(self, *_):
        self.row.count(peak=self.peak())
        if self.is_there():
            ran = self.stress.run("umount", self.point, limit=60)
            if ran.code != 0:
                self.row.fault(f"umount of {self.source}: {ran.code} {ran.line()}")
                subprocess.run(["umount", "-l", self.point], check=False)
        if wait(lambda: not self.is_alive()):
            self.point.rmdir()
        else:
            self.row.fault(f"the daemon of {self.source} goes on after umount")
            self.signal("SIGKILL")


def wait(done, limit=20.0):
    """Waits until `done`; whether it came to that."""
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Sources:
    """The good files of tests/data, some large ones made here, and what each of their virtual files holds."""

    # Bytes of decoded files that are kept to compare with.
    KEPT = 2 << 30
    # Larger ones are left out: a small container may hold very much.
    LARGEST = 64 * MIB

    def __init__(self, stress, row):
        self.stress, self.row, self.views = stress, row, {}
        self.kept = 0
        self.small = sorted(path for name in ("fzm", "blosc2", "zxc", "ztensor", "zstd", "tar")
                            for path in (stress.data / name).iterdir() if self.is_source(path))
        self.large = []

    @staticmethod
    def is_source(path):
        """Whether a file or folder of tests/data is a container."""
        ends = (".fzm", ".b2frame", ".b2nd", ".b2z", ".zxc", ".zt", ".zst")
        return path.name.endswith(ends)

    def prepare(self):
        """Finds out what as many of the files hold as there is time for, and forgets the others."""
        self.stress.random.shuffle(self.small)
        for source in self.large + self.small:
            if source in self.large or self.stress.is_time() or len(self.views) < len(self.large) + 20:
                self.contents(source)
        left = len(self.large) + len(self.small) - len(self.views)
        if left:
            self.stress.skip(f"{left} files of tests/data", "no time for them")
        self.small = sorted(source for source in self.small if source in self.views)

    def contents(self, source):
        """The virtual files of `source` by name, as `extract` gives them; those that it cannot give are left out."""
        if source not in self.views:
            self.views[source] = self.extract(source)
        return self.views[source]

    def extract(self, source):
        listed = self.stress.run("ls", "-lR", source)
        if "entries at once" in listed.line():
            # A frame of a few bytes can stand for millions of chunks.
            listed = self.stress.run("ls", "-l", source)
        if listed.code not in (0, 1) or not listed.out:
            self.row.fault(f"ls -lR {source}: {listed.line()}")
            return {}
        entries = [line.split(maxsplit=2) for line in listed.out.decode().splitlines()]
        fits = lambda mode, size: mode[0] == "-" and size.isdigit() and int(size) <= self.LARGEST
        names, total = [], 0
        for mode, size, name in entries:
            if fits(mode, size) and total + int(size) <= 4 * self.LARGEST:
                names.append(name)
                total += int(size)
        folder = self.stress.folder("contents")
        ran = self.stress.run("extract", source, folder, *names[:2000])
        if ran.code not in (0, 1):
            self.row.fault(f"extract {source}: {ran.code} {ran.line()}")
        views = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
            size = path.stat().st_size
            if self.kept + size <= self.KEPT:
                self.kept += size
                views[str(path.relative_to(folder))] = path.read_bytes()
        shutil.rmtree(folder)
        self.row.count(runs=1, size=sum(map(len, views.values())), refused=int(ran.code != 0), peak=ran.peak)
        self.check_cat(source, views)
        return views

    def check_cat(self, source, views):
        """Compares a file or two with what `cat` gives."""
        for name in self.stress.random.sample(sorted(views), min(2, len(views))):
            ran = self.stress.run("cat", source, name)
            if ran.code != 0 or ran.out != views[name]:
                self.row.fault(f"cat {source} {name}: {ran.code}, not what extract gives {ran.line()}")
            self.row.count(runs=1, size=len(ran.out), peak=ran.peak)

    def check_manifests(self):
        """Compares data.raw of the corpus with the digests that its writers left."""
        for name, key, digest in (("fzm", "cases", "out_sha256"), ("blosc2", "cases", "sha256"),
                                  ("zstd", "files", "content_sha256")):
            cases = json.loads((self.stress.data / name / "MANIFEST.json").read_text())[key]
            self.stress.random.shuffle(cases)
            for case in cases:
                if not self.stress.is_time():
                    return
                if case.get("compare", "exact") != "exact" or case.get("defined_bytes") or not case.get(digest):
                    continue
                if name == "blosc2" and case.get("kind") != "frame":
                    continue
                ran = self.stress.run("cat", self.stress.data / name / case["file"], "data.raw")
                if ran.code == 0 and hashlib.sha256(ran.out).hexdigest() != case[digest]:
                    self.row.fault(f"{name}/{case['file']} is not what its manifest says")
                self.row.count(runs=1, size=len(ran.out), refused=int(ran.code != 0), peak=ran.peak)
