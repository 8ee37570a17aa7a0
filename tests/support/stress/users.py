"""Several users at once on the mounts of one folder and of one bucket, with private containers, objects that are lost or
lied about, users who hold all that they get, and others that are killed: nobody else notices."""

import json
import pathlib
import shutil
import subprocess
import sys
import time

from common import Mount, wait
from server import Server

# Users that read, one that holds what it can, and one that reads what the server loses. Seconds until others are mounted.
READERS, HOLDER, LOST, TURN = (1001, 1002, 65534), 1003, (1004, 1005), 20
# Seconds that somebody who was killed may take to go, and while the kernel lets him wait for the look-up of another one.
GONE, SHARED = 5, 30
OPTIONS = "allow_other,cache=16M,timeout=3"


def start(uid, until, files, secret=(), holds=False):
    """Starts a user."""
    job = {"until": until, "files": files, "secret": list(map(str, secret)), "holds": holds}
    user = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("user.py"), str(uid)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    user.stdin.write(json.dumps(job))
    user.stdin.close()
    return user


def shares(user):
    """Whether a user waits, uninterruptibly, for a look-up of the same name that another one has begun."""
    try:
        return pathlib.Path(f"/proc/{user.pid}/wchan").read_text() == "d_alloc_parallel"
    except OSError:
        return False


def end(row, user, until):
    """What a user found, or that it does not end."""
    if not wait(lambda: user.poll() is not None, until - time.monotonic() + 60):
        user.kill()
        row.fault("a user hangs")
        return
    text = user.stdout.read()
    if user.returncode or not text:
        row.fault(f"a user ended with {user.returncode}")
        return
    said = json.loads(text)
    for fault in said.pop("faults"):
        row.fault(fault)
    row.count(**said)


def files(point, wanted, kind, may_fail=False):
    """The files of the containers that are called as those in `wanted` after `kind`, below `point`, as users are told."""
    # data.zarr tells versions of a file apart, by its time or its tag.
    return [(str(point / (kind + source.name) / view), str(want), may_fail) for source, views in wanted.items()
            for view, want in views if not (kind and view.startswith("data.zarr"))]


def once(stress, row, sources):
    """One pair of mounts."""
    group = stress.random.sample([source for source in sources.small if source.is_file()], 8)
    folder, wants = stress.folder("shared"), stress.folder("wants")
    wanted, number = {}, 0
    for source in group:
        wanted[source] = []
        # By the path of the container: a mount of a folder has it where the file is.
        for view, data in list(sources.contents(source).items())[:20]:
            number += 1
            (wants / str(number)).write_bytes(data)
            wanted[source].append((view, wants / str(number)))
    objects = {}
    for source in group:
        shutil.copy2(source, folder / source.name)
        (folder / source.name).chmod(0o644)
        shutil.copy2(source, folder / f"secret-{source.name}")
        (folder / f"secret-{source.name}").chmod(0o600)
        for kind in ("good", "bad"):
            objects[f"p/{kind}-{source.name}"] = source.read_bytes()
    until = time.monotonic() + min(TURN, max(3.0, stress.end - time.monotonic()))
    with Server(objects) as server, Mount(stress, row, folder, OPTIONS) as local, \
            Mount(stress, row, "s3://bucket/p/", OPTIONS, env=server.env()) as far:
        for mount in (local, far):
            if not mount.ok:
                row.fault(f"mount {mount.source}: {mount.ran.line()}")
                return
        here, good = files(local.point, wanted, ""), files(far.point, wanted, "good-")
        bad = files(far.point, wanted, "bad-", may_fail=True)
        secret = [local.point / f"secret-{source.name}" / view for source in group for view, _ in wanted[source][:2]]
        users = [start(uid, until, here + good, secret) for uid in READERS]
        users.append(start(HOLDER, until, here + bad, secret, holds=True))
        users += [start(uid, until, bad) for uid in LOST]
        # One after the other is killed while it waits, or not.
        while time.monotonic() < until - 1:
            victim = start(LOST[0], until, bad)
            time.sleep(stress.random.uniform(0.2, 2))
            victim.kill()
            if not wait(lambda: victim.poll() is not None, GONE) and not (
                    shares(victim) and wait(lambda: victim.poll() is not None, SHARED)):
                row.fault("a user that was killed stays")
        for user in users:
            end(row, user, until)
    shutil.rmtree(folder)
    shutil.rmtree(wants)


def run(stress, row, sources):
    """Pairs of mounts, one after the other."""
    stress.work.chmod(0o711)
    while stress.is_time():
        once(stress, row, sources)
