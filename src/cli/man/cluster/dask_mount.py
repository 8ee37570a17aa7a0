"""A mount for each worker of dask.distributed, and reads of it that outlive its daemon::

    with fzmfs.open("s3://bucket/field.b2nd") as source:    # the client needs only metadata
        shape, dtype = source["data"].shape, source["data"].dtype
        etag = source.identity.partition("ETag ")[2]
    client.register_plugin(Mount("s3://bucket/field.b2nd", expect=etag, remote_cache="/scratch/me/fzmfs"))
    client.map(lambda part: numpy.frombuffer(mounted().read("data.raw", part * size, size), dtype).sum(), range(parts))

Workers take credentials from their environment; no plugin should carry them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import tempfile
import threading
from pathlib import Path

import distributed

# What reads fail with after the daemon of a mount has died, while it dies, and if it could not be mounted again.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT)


class Mount(distributed.WorkerPlugin):
    """Keeps ``source`` mounted while a worker runs. The options are the long ones of ``fzmfs mount``."""

    name = "fzmfs"

    def __init__(self, source: str, *, program: str = "fzmfs", **options: object) -> None:
        self.source, self.program = source, program
        self.options = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]

    def setup(self, worker: distributed.Worker) -> None:
        self.lock = threading.Lock()
        self.point = Path(tempfile.mkdtemp(prefix="fzmfs-"))
        self.mount()

    def teardown(self, worker: distributed.Worker) -> None:
        self.unmount()
        self.point.rmdir()

    def read(self, name: str, start: int, size: int) -> bytearray:
        """Bytes of a file of the mount. If its daemon has died, mounts again, which ``expect`` allows only for the same
        version of the source.

        Files are read and not mapped: a mapped file that cannot be read ends the whole process, with SIGBUS.
        """
        try:
            return read(self.point / name, start, size)
        except OSError as error:
            # Another thread may have mounted since.
            if not self.mount_again() and error.errno not in GONE:
                raise
        return read(self.point / name, start, size)

    def mount_again(self) -> bool:
        """Mounts again if the daemon has died; returns whether it had."""
        with self.lock:
            try:
                os.getxattr(self.point, "user.fzmfs.daemon.pid")  # asks the daemon, always
            except OSError:
                self.unmount()
                self.mount()
                return True
        return False

    def mount(self) -> None:
        self.run("mount", *self.options, self.source, self.point)

    def unmount(self) -> None:
        with contextlib.suppress(OSError):  # it was not mounted
            self.run("umount", self.point)

    def run(self, *command: str | Path) -> None:
        done = subprocess.run([self.program, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(done.stderr.strip())


def mounted() -> Mount:
    """The mount of the worker that runs this task."""
    return distributed.get_worker().plugins[Mount.name]


def read(path: Path, start: int, size: int) -> bytearray:
    content = bytearray(size)
    with path.open("rb") as file:
        file.seek(start)
        if file.readinto(content) != size:
            raise EOFError(f"{path} ends before byte {start + size}")
    return content
