"""Other processes: fork, spawn, pools; and that nothing is left behind."""

from __future__ import annotations

import concurrent.futures
import errno
import gc
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA, PATIENCE, sha256
from numcodecs.zstd import Zstd

import fzmfs

B2ND = str(DATA / "blosc2/n05_5d_f4.b2nd")


def digest(array: fzmfs.Array, at: int) -> str:
    return sha256(array[at].tobytes())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_reads_an_array(method: str) -> None:
    array = fzmfs.open(B2ND, threads=2)["data"]
    want = [digest(array, at) for at in range(5)]
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(digest, [array] * 5, range(5))) == want


def test_what_was_open_before_a_fork_reads_after_it() -> None:
    archive = fzmfs.open(B2ND, threads=2)
    array = archive["data"]
    want = array[...]  # threads are running now
    context = multiprocessing.get_context("fork")

    def child() -> None:
        ok = np.array_equal(array[::2], want[::2]) and archive.read("data.raw") == want.tobytes()
        archive.close()
        os._exit(0 if ok else 1)

    process = context.Process(target=child)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert np.array_equal(array[...], want)


def test_what_a_forked_process_does_not_use_is_no_burden() -> None:
    archive = fzmfs.open(B2ND, threads=2)
    array, file = archive["data"], archive._reader().file("data.raw")
    array[...]  # threads are running now
    process = os.fork()
    if process == 0:
        ok = False
        try:
            archive._opened = array._native = None
            gc.collect()
            len(file)
        except RuntimeError as error:
            del file
            ok = "fork" in str(error)
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert array[0].shape == (4, 6, 3, 7) and len(file) == 10080


def test_after_a_fork_a_changed_source_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.b2nd"
    path.write_bytes(Path(B2ND).read_bytes())
    array = fzmfs.open(path)["data"]
    array[0]
    os.utime(path, ns=(1, 1))

    def child() -> None:
        try:
            array[0]
        except fzmfs.Error as error:
            os._exit(0 if error.kind == "changed" else 2)
        os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.parametrize(
    "work",
    ["array[0:3]", "array[...]", "archive.info", "archive.files()", "archive.verify(lambda *_: None)", "fzmfs.open(path).close()"],
)
def test_a_process_ends_while_daemon_threads_are_in_a_call(work: str) -> None:
    code = f"""
import fzmfs, threading
path = {B2ND!r}
archive = fzmfs.open(path)
array = archive["data"]
begun = threading.Barrier(5)
def go_on():
    {work}
    begun.wait()
    while True:
        {work}
for _ in range(4):
    threading.Thread(target=go_on, daemon=True).start()
begun.wait()
"""
    # Wherever in a call they are.
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_process_ends_while_another_interpreter_has_an_archive() -> None:
    interpreters = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    code = f'''
import {interpreters} as interpreters
code = """
try:
    import fzmfs
except ImportError:  # since Python 3.12, of modules that are not made for several
    print("refused")
else:
    archive = fzmfs.open({B2ND!r})
    print(archive["data"].shape)
"""
interpreters.run_string(interpreters.create(), code)
'''
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    want = "(5, 4, 6, 3, 7)" if sys.version_info < (3, 12) else "refused"
    assert (done.returncode, done.stdout) == (0, f"{want}\n"), done.stderr


def test_a_lack_of_descriptors_is_called_so() -> None:
    code = f"""
import fzmfs, os, resource
def read():
    fzmfs.open({str(DATA / "blosc2/n22_sframe_b2nd.b2nd")!r}, threads=1)["data"][...]
read()
failed = set()
for limit in range(1, 100):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 100))
    try:
        read()
    except fzmfs.Error as error:
        failed.add(error.errno)
    else:
        break
print(limit < 99, failed)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == f"True {{{errno.EMFILE}}}\n", done.stderr


def resident() -> int:
    """All that this process has in memory: what Python and the allocator keep is in no account."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_thousands_of_opens_leave_nothing() -> None:
    def use() -> None:
        for _ in range(400):
            archive = fzmfs.open(B2ND, threads=1, cache=1 << 20)
            archive["data"][0, 0]
            try:
                archive.read("missing")
            except fzmfs.Error:
                pass
        gc.collect()

    use()
    files, grown = len(os.listdir("/proc/self/fd")), 1 << 40
    # What each open leaves is there in each round; what the allocator takes for itself is not.
    for _ in range(3):
        before = resident()
        for _ in range(4):
            use()
        grown = min(grown, resident() - before)
        if grown < 1600 << 10:
            break
    assert len(os.listdir("/proc/self/fd")) <= files
    assert grown < 1600 << 10


def grown(path: Path) -> tuple[int, int]:
    """How much larger this process is while the pieces of an archive are in its cache, and when it is closed."""
    before, mib = resident(), 1 << 20
    with fzmfs.open(path, threads=2, dtype="u1", shape=(160, mib), cache=256 * mib) as archive:
        array = archive["data"]
        for row in np.random.default_rng(1).permutation(160).tolist():
            array[row, :64]
        held = resident() - before
    return held, resident() - before


def test_a_closed_archive_gives_back_what_it_held(tmp_path: Path) -> None:
    path, mib = tmp_path / "x.zst", 1 << 20
    path.write_bytes(Zstd(level=1, checksum=True).encode(bytes(mib)) * 160)
    # In this process, other tests have left memory that is used again.
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        held, left = pool.submit(grown, path).result(PATIENCE)
    assert held > 128 * mib and left < 64 * mib
