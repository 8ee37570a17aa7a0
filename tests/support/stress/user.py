"""One user of the stress test: user.py UID, a job in JSON on standard input; what came of it in JSON.

A job: `until`, a time of the monotonic clock; `files`, each a path, the file that has its bytes, and whether it may fail;
`secret`, paths that must not be readable; `holds`, whether it keeps open as much as it can.
"""

import json
import os
import random
import sys
import time

uid = int(sys.argv[1])
job = json.load(sys.stdin)
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
dice = random.Random(uid)
runs, size, refused, longest, held, faults = 0, 0, 0, 0.0, [], []


def read(path, want):
    """Whole, or here and there."""
    with open(path, "rb", buffering=0) as file:
        if dice.random() < 0.5:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            got = bytearray()
            while block := os.read(file.fileno(), 100_000):
                got += block
            return len(got), got == want
        at, count = dice.randrange(len(want) + 5000), dice.choice((1, 4096, 30_000, 1 << 20))
        got = os.pread(file.fileno(), count, at)
        if len(got) < len(want[at:at + count]) and want[at:at + count].startswith(got):
            raise OSError("a short read")
        return len(got), got == want[at:at + count]


def hold(path):
    """Keeps a file open, until there is no more room."""
    try:
        held.append(os.open(path, os.O_RDONLY))
    except OSError:
        for descriptor in held[:len(held) // 2]:
            os.close(descriptor)
        del held[:len(held) // 2]


while time.monotonic() < job["until"] and len(faults) < 5:
    for path in job["secret"]:
        try:
            with open(path, "rb") as file:
                faults.append(f"user {uid} reads {path}: {file.read(8)}")
        except OSError:
            refused += 1
    path, wanted, may_fail = dice.choice(job["files"])
    if job["holds"]:
        hold(path)
        continue
    with open(wanted, "rb") as file:
        want = file.read()
    began = time.monotonic()
    try:
        count, is_right = read(path, want)
    except OSError as error:
        refused += 1
        if not may_fail:
            faults.append(f"user {uid}: {path}: {error}")
        continue
    runs, size, longest = runs + 1, size + count, max(longest, time.monotonic() - began)
    if not is_right:
        faults.append(f"user {uid}: {path}: other bytes than cat gives")
print(json.dumps({"runs": runs, "size": size, "refused": refused, "took": longest, "faults": faults}))
