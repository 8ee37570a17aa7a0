"""Jobs of dask.distributed whose workers each have a mount of their own, over S3: the recipe that packages bring, run.

tests/python/test_cluster.py runs them in small, scripts/cluster with a large array.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import logging
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import distributed
import numpy as np
import pytest
from servers import ROOT, Moto, delayed, moto, nginx

import fzmfs

sys.path.append(str(ROOT / "src/cli/man/cluster"))
from dask_mount import Mount, mounted  # noqa: E402

BLOSC2 = ROOT / "target/oracles/blosc2/bin/python"
KEY = "field.b2nd"
URL = f"s3://bucket/{KEY}"
WINDOW = 64 << 10  # a chunk


def program() -> str:
    """The program to test; skips where it cannot mount."""
    found = os.environ.get("FZMFS_PROGRAM")
    why = None if found else "FZMFS_PROGRAM, which scripts/python sets, names no program"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        why = f"mounts cannot be made: {error}"
    if why:
        assert "FZMFS_REQUIRE_FUSE" not in os.environ, why
        pytest.skip(why)
    return found


class Field:
    """A file with an array (make_field.py), whose sums by parts are known."""

    def __init__(self, path: Path, mib: int, parts: int, seed: int = 0) -> None:
        if not BLOSC2.exists():
            pytest.skip("the official Blosc2 library is not installed: scripts/oracle blosc2")
        make = [BLOSC2, Path(__file__).with_name("make_field.py"), path, *map(str, (mib, parts, seed))]
        self.sums = json.loads(subprocess.run(make, check=True, stdout=subprocess.PIPE).stdout)
        self.path, self.size, self.slab = path, mib << 20, (mib << 20) // parts


@contextlib.contextmanager
def cluster(workers: int, endpoint: str) -> Iterator[distributed.Client]:
    """Processes that take S3 from ``endpoint``. They leave no mount behind."""
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": None}
    options["silence_logs"] = logging.CRITICAL  # tasks that fail as they should
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "IDIDID")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("TMPDIR", folder)
        with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
            yield client
        assert not list(Path(folder).glob("fzmfs-*"))


def mount(client: distributed.Client, field: Field, **options: object) -> None:
    """Every worker mounts the version that the client sees; of that, the client reads the metadata."""
    with fzmfs.open(URL) as source:
        assert source["data"].nbytes == field.size and source["data"].dtype == "<i4"
        tag = source.identity.partition("ETag ")[2]
    client.register_plugin(Mount(URL, program=program(), expect=tag, **options))


def daemon(dask_worker: distributed.Worker) -> int:
    return int(os.getxattr(dask_worker.plugins[Mount.name].point, "user.fzmfs.daemon.pid"))


def total(start: int, size: int) -> int:
    """The sum of some bytes of the array."""
    return int(np.frombuffer(mounted().read("data.raw", start, size), "<i4").sum(dtype="i8"))


def slab(number: int, size: int, after: str | None) -> int:
    assert after is None or distributed.Event(after).wait(300)
    return total(number * size, size)


def slabs(
    client: distributed.Client, field: Field, disturb: Callable[[], None] = lambda: None, at_once: int = 1 << 30
) -> list[distributed.Future]:
    """Sums the array, slab by slab, each worker a run of them. When each has done one, ``disturb`` is called; what is
    left of its first ``at_once`` goes on meanwhile, the others begin after it.
    """
    workers, event = sorted(client.nthreads()), uuid.uuid4().hex
    futures, run = [], len(field.sums) // len(workers)
    for number in range(len(field.sums)):
        worker, turn = divmod(number, run)
        after = event if turn >= at_once else None
        options = {"workers": [workers[worker]], "priority": -turn, "pure": False}
        futures.append(client.submit(slab, number, field.slab, after, **options))
    distributed.wait(futures[::run])
    disturb()
    distributed.Event(event).set()
    distributed.wait(futures)
    return futures


def check_sums(client: distributed.Client, field: Field, cache: Path) -> None:
    """The workers, which share a cache on disk, sum the array as it is."""
    mount(client, field, remote_cache=cache)
    assert client.gather(slabs(client, field)) == field.sums


def check_killed(client: distributed.Client, field: Field) -> None:
    """A daemon is killed while all read: its worker mounts again, the others do not, and the sums are right."""
    mount(client, field)
    before = client.run(daemon)
    victim, last = min(before), len(field.sums) // len(before) - 1
    futures = slabs(client, field, lambda: os.kill(before[victim], signal.SIGKILL), at_once=last)
    assert client.gather(futures) == field.sums
    after = client.run(daemon)
    assert [worker for worker in before if before[worker] != after[worker]] == [victim]


def check_replaced(client: distributed.Client, field: Field, server: Moto, other: Field) -> set[str]:
    """The object is replaced while all read, and a daemon killed: the job fails, and no sum has anything of the new
    object. Returns how the reads failed.
    """
    mount(client, field, cache="4M")  # little can be in memory when it is replaced
    daemons = client.run(daemon)
    victim = min(daemons)

    def disturb() -> None:
        server.put(KEY, other.path.read_bytes())
        os.kill(daemons[victim], signal.SIGKILL)

    futures = slabs(client, field, disturb, at_once=1)
    with pytest.raises(OSError):
        client.gather(futures)
    said = set()
    for number, future in enumerate(futures):
        if future.status == "finished":
            assert future.result() == field.sums[number]
            continue
        error = future.exception()
        if number < len(futures) // len(daemons):  # the victim's, which is the first worker
            # What it mounts again would be another version.
            assert "the object has the ETag" in str(error)
            said.add("mount refused: another ETag")
        else:
            assert error.errno in (errno.EIO, errno.ESTALE), error
            said.add(f"read failed: {errno.errorcode[error.errno]}")
    assert len(said) >= 2, said
    return said


def windows(seed: int, size: int, count: int) -> list[int]:
    return [chunk * WINDOW for chunk in random.Random(seed).sample(range(size // WINDOW), count)]


def window_sums(seed: int, size: int, count: int) -> list[int]:
    return [total(start, WINDOW) for start in windows(seed, size, count)]


def check_windows(field: Field, folder: Path, workers: int, tasks: int, rounds: int) -> tuple[float, float, float]:
    """Windows at random places, from a server 50 ms away, read by one worker and by all: as the local file has them.

    A window is a chunk that nobody has read, so it costs round trips and hardly any decoding: the network decides, and
    not the processors. moto reads its object whole for each request, so nginx is the server here; it gives objects as
    S3 does. Returns the median seconds of both, and the requests for each window.
    """
    count = 4
    with (
        nginx(folder) as server,
        delayed(server.url, 0.05) as endpoint,
        cluster(workers, endpoint) as client,
        fzmfs.open(field.path) as near,
    ):
        (server.root / "bucket").mkdir()
        shutil.copy(field.path, server.root / "bucket" / KEY)
        addresses, requests = list(client.nthreads()), 0
        seconds = {1: [], workers: []}
        for number, readers in itertools.product(range(rounds), seconds):
            mount(client, field)
            server.take_log()
            seeds = range(number * tasks, (number + 1) * tasks)
            options = {"workers": addresses[:readers], "pure": False}
            begin = time.perf_counter()
            got = client.gather(client.map(window_sums, seeds, size=field.size, count=count, **options))
            seconds[readers].append(time.perf_counter() - begin)
            requests += len(server.take_log())
            for seed, sums in zip(seeds, got, strict=True):
                want = [near.read("data.raw", start, WINDOW) for start in windows(seed, field.size, count)]
                assert sums == [int(np.frombuffer(raw, "<i4").sum(dtype="i8")) for raw in want]
    one, all_of_them = (statistics.median(times) for times in seconds.values())
    return one, all_of_them, requests / (2 * rounds * tasks * count)


@contextlib.contextmanager
def served(folder: Path, mib: int, parts: int, workers: int) -> Iterator[tuple[distributed.Client, Field, Moto]]:
    """An array in S3, and a cluster that can mount it."""
    program()
    field = Field(folder / KEY, mib, parts)
    with moto() as server, cluster(workers, server.endpoint) as client:
        server.put(KEY, field.path.read_bytes())
        yield client, field, server


def main(mib: int = 1024, parts: int = 64, workers: int = 4) -> None:
    """All checks in large. Prints a table."""

    def row(what: str, begin: float, outcome: str) -> None:
        print(f"{what:<44} {time.perf_counter() - begin:6.1f} s  {outcome}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder, mib, parts, workers) as (client, field, server):
            stored = field.path.stat().st_size >> 20
            print(f"{mib} MiB, {stored} MiB stored; {workers} workers, each with a mount of its own, over S3 from moto")
            for what in ("sum", "sum, from the cache on disk"):
                begin = time.perf_counter()
                check_sums(client, field, folder / "cache")
                row(what, begin, "equal")
            begin = time.perf_counter()
            check_killed(client, field)
            row("sum, a daemon killed with -9", begin, "equal; that worker has mounted again")
            other = Field(folder / "other.b2nd", mib, parts, seed=1)
            begin = time.perf_counter()
            said = check_replaced(client, field, server, other)
            row("sum, the object replaced and a daemon killed", begin, f"failed: {'; '.join(sorted(said))}; no mixture")
        begin, rounds = time.perf_counter(), 3
        one, all_of_them, requests = check_windows(field, folder, workers, tasks=64, rounds=rounds)
        row(f"256 windows, server 50 ms away, {rounds} rounds", begin, f"equal; {requests:.2f} requests for a window")
        print(f"    medians: 1 worker {one:.2f} s, {workers} workers {all_of_them:.2f} s: {one / all_of_them:.2f} x")
