"""What goes wrong around a mount: changed sources, failing disks, signals, small limits, full disks."""

import os
import pathlib
import resource
import shutil
import subprocess
import threading
import time

from common import MIB, Mount, wait
from readers import join, readers

PAGE = 4096


def pages(row, path, want, step, label):
    """Pages of `path`, which is `label`, all over it: its bytes or an error, nothing else."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        row.count(refused=1)
        return
    try:
        for at in range(0, len(want), step):
            try:
                got = os.pread(fd, PAGE, at)
            except OSError:
                row.count(refused=1)
                continue
            row.count(runs=1, size=len(got))
            if got != want[at:at + PAGE]:
                row.fault(f"{label} at {at}: other bytes")
                return
    finally:
        os.close(fd)


def change(file, how, dice):
    """Changes a file as `how` says."""
    stat = os.stat(file)
    data = file.read_bytes()
    middle, size = len(data) // 3, max(1, len(data) // 3)
    new = bytes(byte ^ 0x5A for byte in data[middle:middle + min(size, MIB)])
    if how == "rename":
        other = file.with_name(".new")
        other.write_bytes(data[:middle] + new + data[middle + len(new):])
        os.replace(other, file)
    elif how == "cut":
        os.truncate(file, dice.randrange(len(data)))
    else:
        with open(file, "r+b") as out:
            out.seek(middle)
            out.write(new)
        if how == "restore":
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def changes(stress, row, sources):
    """Sources that are replaced, written in place (with the old time put back too) or cut while they are read."""
    files = [source for source in sources.large + sources.small if source.is_file()]
    sparse = [source for source in sources.small if source.is_dir() and list(source.glob("*.chunk"))]
    while stress.is_time():
        source = stress.random.choice(sparse if sparse and stress.random.random() < 0.3 else files)
        how = stress.random.choice(("rename", "write", "restore", "cut"))
        views = {name: want for name, want in sources.contents(source).items() if len(want) > PAGE}
        if not views:
            continue
        folder = stress.folder("src")
        copy = folder / source.name
        if source.is_dir():
            shutil.copytree(source, copy)
            target = stress.random.choice(sorted(copy.glob("*.chunk")))
        else:
            shutil.copy2(source, copy)  # data.zarr has its time
            target = copy
        with Mount(stress, row, copy, "cache=1M") as mount:
            if mount.ok:
                names = stress.random.sample(sorted(views), min(3, len(views)))
                for name in names:
                    pages(row, mount.point / name, views[name][:MIB], 64 << 10, f"{source} {name}")
                change(target, how, stress.random)
                time.sleep(stress.random.choice((0, 0.1, 1.2)))
                for name in names:
                    step = max(PAGE, len(views[name]) // 200)
                    pages(row, mount.point / name, views[name], step, f"{source} {name}, {target.name}: {how}")
        shutil.rmtree(folder)


def transient(stress, row, sources):
    """Reads of the source that fail for a while: never other bytes, and right ones afterwards."""
    if not stress.shim:
        stress.skip(row.what, "no C compiler")
        return
    while stress.is_time():
        source = stress.random.choice(sources.small + sources.large * 5)
        views = {name: want for name, want in sources.contents(source).items() if name.endswith((".raw", ".bin"))}
        if not views:
            continue
        name = stress.random.choice(sorted(views))
        faults = stress.folder("faults")
        env = {"LD_PRELOAD": str(stress.shim), "STRESS_FAULTS": str(faults), "STRESS_FILE": source.name}
        with Mount(stress, row, source, "cache=1M,spill=64M", env=env) as mount:
            if not mount.ok:
                row.fault(f"mount {source}: {mount.ran.line()}")
                continue
            path, want = mount.point / name, views[name]
            (faults / "eio").touch()
            pages(row, path, want, max(PAGE, len(want) // 20), f"{source} {name}")
            (faults / "eio").unlink()
            right = wait(lambda: attempt(path) == want, 5)
            if not right:
                row.fault(f"{source} {name}: an error of the disk stays after it is over")
            (faults / "mix").touch()
            end = time.monotonic() + 1.5
            pair = (path, want, f"{source} {name}")
            join(row, readers(row, [pair], lambda: time.monotonic() > end, count=4, may_fail=True))
            (faults / "mix").unlink()
            if right and not wait(lambda: attempt(path) == want, 5):
                row.fault(f"{source} {name}: errors of the disk stay after they are over")
            if not mount.is_alive():
                row.fault(f"{source}: the daemon died of errors of the disk")
        shutil.rmtree(faults)


def attempt(path):
    """The bytes of a file, or nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def ends(stress, row, sources):
    """A daemon that is killed, ended or unmounted under load: readers come back, the mount goes, the next one works."""
    while stress.is_time():
        source = stress.random.choice(sources.large + sources.small)
        if not any(sources.contents(source).values()):
            continue
        how = stress.random.choice(("SIGKILL", "SIGTERM", "SIGTERM SIGTERM", "umount", "SIGSTOP"))
        options = "cache=2M,auto_unmount" if stress.random.random() < 0.3 else "cache=2M"
        mount = Mount(stress, row, source, options)
        if not mount.ok:
            row.fault(f"mount {source}: {mount.ran.line()}")
            continue
        over = threading.Event()
        pairs = [pair for pair in mount.pairs(sources) if pair[1]]
        threads = readers(row, pairs, over.is_set, count=6, may_fail=True)
        time.sleep(stress.random.random())
        if how == "umount":
            if stress.run("umount", mount.point, limit=40).code not in (0, 1):
                row.fault(f"{source}: umount under load")
        elif how == "SIGSTOP":
            mount.signal("SIGSTOP")
            time.sleep(0.5)
            mount.signal("SIGCONT")
        else:
            for name in how.split():
                mount.signal(name)
                time.sleep(0.2)
        over.set()
        join(row, threads, 40)
        if how.startswith("SIG") and how != "SIGSTOP" and not wait(lambda: not mount.is_alive(), 30):
            row.fault(f"{source}: the daemon goes on after {how}")
        if how == "SIGTERM" and mount.is_there() and not wait(lambda: not mount.is_there(), 5):
            row.fault(f"{source}: mounted after {how}")
        mount.__exit__()
        row.count(runs=1)


# What ulimit may say, in the words of resource.setrlimit.
LIMITS = ([(resource.RLIMIT_NOFILE, n) for n in (6, 8, 9, 10, 11, 12, 14, 16, 24, 64)]
          + [(resource.RLIMIT_AS, n * MIB) for n in (60, 100, 150, 200, 250, 300, 400, 1000)]
          + [(resource.RLIMIT_FSIZE, 100 << 10), (resource.RLIMIT_NPROC, 1)])


def limits(stress, row, sources):
    """Small limits: it works, or says in one line why not."""
    todo = []
    while stress.is_time():
        todo = todo or stress.random.sample(LIMITS, len(LIMITS))
        what, value = limit = todo.pop()
        source = stress.random.choice(sources.large + sources.small)
        text = f"{source.name} with limit {what} = {value}"
        views = sources.contents(source)
        if not views:  # Those of the others fill the memory for them.
            continue
        name, want = stress.random.choice(sorted(views.items()))
        ran = stress.run("cat", source, name, rlimits=[limit])
        judge(row, f"cat {text}", ran)
        if ran.code == 0 and ran.out != want:
            row.fault(f"cat {text}: other bytes")
        with Mount(stress, row, source, "cache=8M", limit=30, rlimits=[limit]) as mount:
            judge(row, f"mount {text}", mount.ran)
            if not mount.ok:
                if mount.is_there():
                    row.fault(f"mount {text}: failed, and a mount is left")
                    subprocess.run(["umount", "-l", mount.point], check=False)
                continue
            got = attempt(mount.point / name)
            row.count(runs=1, size=len(got or b""), refused=int(got is None))
            if got is not None and got != want:
                row.fault(f"mount {text}: other bytes")
            if not mount.is_alive():
                row.fault(f"mount {text}: the daemon died")


def judge(row, text, ran):
    """A run that failed has said why in one line, and was not ended by a signal."""
    row.count(runs=1, refused=int(ran.code != 0), peak=ran.peak)
    if not ran.ended or ran.code not in (0, 1):
        row.fault(f"{text}: {'hangs' if not ran.ended else ran.code}: {ran.line()[:200]}")
    elif ran.code == 1 and (not ran.line().startswith("fzmfs: ") or "\n" in ran.line()):
        row.fault(f"{text}: not one line says why: {ran.line()[:200]!r}")


def full(stress, row, sources):
    """Temporary files on a disk that is small, full or read-only: right bytes or an error."""
    disk = stress.folder("disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6M", "none", disk], capture_output=True, check=False)
    if made.returncode != 0:
        stress.skip(row.what, made.stderr.decode().strip())
        return
    try:
        while stress.is_time():
            source = stress.random.choice(sources.large)
            views = sorted((name, want) for name, want in sources.contents(source).items() if want)
            with Mount(stress, row, source, "cache=2M,spill=4G", env={"TMPDIR": str(disk)}) as mount:
                if not mount.ok:
                    row.fault(f"mount {source}: {mount.ran.line()}")
                    continue
                for name, want in stress.random.sample(views, min(4, len(views))):
                    pages(row, mount.point / name, want, max(PAGE, len(want) // 50), f"{source} {name}")
                (disk / "x").write_bytes(bytes(max(0, os.statvfs(disk).f_bavail * PAGE - PAGE)))
                for name, want in stress.random.sample(views, min(4, len(views))):
                    pages(row, mount.point / name, want, max(PAGE, len(want) // 50), f"{source} {name}")
                (disk / "x").unlink()
                if not mount.is_alive():
                    row.fault(f"{source}: the daemon died of a full disk")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def names(stress, row, sources):
    """Files and mount points with odd names: mounted read-only, nosuid and nodev under that very name."""
    odd = ["a,dev,suid,rw", "a\nb 0 0\nfuse", "sp ace", "tab\tx", "q\"u'ote", "back\\040slash\\", "\udcff\udcfe", "-rf",
           "#hash", "a\\,dev", "end\\", "%2F", "x - fuse.fzmfs y rw", "\x1b]0;x\x07\u009b2J\u202e", "\u00fc\U0001f600"]
    source = next(source for source in sources.small if source.is_file())
    name, want = next((name, want) for name, want in sources.contents(source).items() if want)
    for word in odd:
        if not stress.is_time():
            break
        folder = stress.folder("names")
        file = folder / f"./{word}{source.suffix}"
        shutil.copy2(source, file)
        point = folder / f"p{word}"
        point.mkdir()
        with Mount(stress, row, file, "", point=point) as mount:
            text = ascii(word)
            if not mount.ok:
                row.fault(f"{text}: {mount.ran.line()}")
                continue
            got = attempt(point / name)
            row.count(runs=1, size=len(got or b""))
            if got != want:
                row.fault(f"{text}: other bytes")
            flags = os.statvfs(point).f_flag
            if flags & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV) != os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV:
                row.fault(f"{text}: not read-only, nosuid and nodev")
            if stress.run("umount", point).code != 0:
                row.fault(f"{text}: not unmounted")
        shutil.rmtree(folder)


def is_root():
    """Whether this may mount."""
    return os.geteuid() == 0 and pathlib.Path("/dev/fuse").exists()
