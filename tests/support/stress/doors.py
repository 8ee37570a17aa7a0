"""All doors at once on one folder, with one kept index: two mounts, the server, and processes that use the Python module.
Readers at each compare what they get; some are killed, and so are the server and a mount, which come back."""

import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse

import readers
from common import MIB, Mount, wait

# Readers of a mount and of the server, processes of Python; seconds until another folder, and between two kills.
MOUNTED, FETCHING, IMPORTING, TURN, KILL = 4, 4, 2, 30, 4
# A Python that has the module.
PYTHON = os.environ.get("FZMFS_PYTHON") or sys.executable
READ = """
import json, random, sys, time, fzmfs
job = json.load(sys.stdin)
dice, runs, size, refused, faults = random.Random(job["seed"]), 0, 0, 0, []
while time.monotonic() < job["until"] and len(faults) < 5:
    source, name, wanted = dice.choice(job["files"])
    want = open(wanted, "rb").read()
    try:
        with fzmfs.open(source, cache="8M", index=job["index"]) as archive:
            at, count = dice.randrange(len(want) + 10), dice.choice((1, 4096, 1 << 20, None))
            got = archive.read(name, at, count)
    except (OSError, fzmfs.Error) as error:
        faults.append(f"{source} {name}: {error}")
        continue
    runs, size = runs + 1, size + len(got)
    if got != (want[at:] if count is None else want[at:at + count]):
        faults.append(f"{source} {name}: other bytes than cat gives")
print(json.dumps({"runs": runs, "size": size, "refused": refused, "faults": faults}))
"""


class Served:
    """`fzmfs serve` of a folder, at an address that stays while it is killed and started again."""

    def __init__(self, stress, folder, index):
        self.words = [stress.program, "serve", folder, "--no-token", "--cache", "16M", "--index", index, "--listen"]
        self.port, self.process = 0, None
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.words, f"127.0.0.1:{self.port}"], text=True, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        self.port = int(line.rpartition("127.0.0.1:")[2].split("/")[0])

    def end(self, how="terminate"):
        getattr(self.process, how)()
        code = self.process.wait(30)
        self.process.stdout.close()
        return code

    def read(self, path, at, count):
        """Bytes of a file, by a range; `None` if the server is not there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Range": f"bytes={at}-{at + count - 1}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def fetch(row, served, files, until, seed):
    """Reads parts of files from the server, which may be away for a moment."""
    dice = random.Random(seed)
    while not until():
        path, want, label = dice.choice(files)
        if not want:
            continue
        at, count, began = dice.randrange(len(want)), dice.choice((1, 4096, 100_000, MIB)), time.monotonic()
        got = served.read(path, at, count)
        if got is None:
            row.count(refused=1)
            time.sleep(0.05)
        elif got != (206, want[at:at + count]):
            row.fault(f"HTTP {label}: {got[0]}, {len(got[1])} bytes, not those that cat gives")
        else:
            row.count(runs=1, size=len(got[1]), took=time.monotonic() - began)


def imported(job):
    """A process of Python that reads."""
    user = subprocess.Popen([PYTHON, "-c", READ], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    user.stdin.write(json.dumps(job))
    user.stdin.close()
    user.stdin = None  # communicate() would flush it
    return user


def once(stress, row, sources, has_module):
    """One folder."""
    group = stress.random.sample([source for source in sources.small if source.is_file()], 6) + sources.large
    folder, wants, index = stress.folder("doors"), stress.folder("wants"), stress.folder("index")
    index.chmod(0o700)
    inside, mounted = [], []
    for source in group:
        shutil.copy2(source, folder / source.name)
        # data.zarr tells versions of a file apart, by its time and name.
        views = [(view, want) for view, want in sources.contents(source).items() if not view.startswith("data.zarr")]
        for view, want in views[:20]:
            wanted = wants / str(len(inside))
            wanted.write_bytes(want)
            inside.append((str(folder / source.name), view, str(wanted)))
            mounted.append((f"{source.name}/{view}", want, f"{source} {view}"))
    end = time.monotonic() + min(TURN, max(3.0, stress.end - time.monotonic()))
    is_over, served = (lambda: time.monotonic() > end), Served(stress, folder, index)
    with Mount(stress, row, folder, f"cache=16M,index={index}") as first:
        second = Mount(stress, row, folder, f"threads=1,cache=1M,index={index}")
        pairs = lambda mount: [(mount.point / name, want, label) for name, want, label in mounted]
        urls = [("/" + urllib.parse.quote(name), want, label) for name, want, label in mounted]
        threads = readers.readers(row, pairs(first), is_over, 1, MOUNTED)
        threads += readers.readers(row, pairs(second), is_over, 2, MOUNTED, may_fail=True)
        for number in range(FETCHING):
            threads.append(threading.Thread(target=fetch, args=(row, served, urls, is_over, number), daemon=True))
            threads[-1].start()
        job = lambda seed: {"seed": seed, "until": end, "files": inside, "index": str(index)}
        users = [imported(job(seed)) for seed in range(IMPORTING if has_module else 0)]
        while time.monotonic() < end - 1:
            victim = imported(job(99)) if has_module else None
            time.sleep(min(KILL, max(0.0, end - time.monotonic())))
            if victim:
                victim.kill()
                victim.communicate()
            served.end("kill")
            served.start()
            second.signal("SIGKILL")
            if not wait(lambda: not second.is_alive()):
                row.fault("a daemon that was killed stays")
            subprocess.run(["umount", "-l", second.point], check=False)
            second = Mount(stress, row, folder, f"threads=1,cache=1M,index={index}", second.point)
            if not second.ok:
                row.fault(f"mount again: {second.ran.line()}")
        readers.join(row, threads)
        for user in users:
            said = json.loads(user.communicate(timeout=90)[0] or '{"faults": ["a process of Python ended"]}')
            for fault in said.pop("faults"):
                row.fault(f"Python: {fault}")
            row.count(**said)
        second.__exit__()
    if served.end() != 0:
        row.fault(f"serve ended with {served.process.returncode}")
    for path in (folder, wants, index):
        shutil.rmtree(path)


def run(stress, row, sources):
    """Folders, one after the other."""
    has_module = subprocess.run([PYTHON, "-c", "import fzmfs"], capture_output=True, check=False).returncode == 0
    if not has_module:
        stress.skip("processes of Python", f"{PYTHON} has no module fzmfs; FZMFS_PYTHON names one that has")
    while stress.is_time():
        once(stress, row, sources, has_module)
