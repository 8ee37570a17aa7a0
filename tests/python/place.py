"""Where the lines of the documents are run: a directory with the files, and servers with the objects, that they name."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array
import fsspec
import numpy as np
import pytest
import xarray
import zarr
from clusters import program
from conftest import DATA
from numcodecs.zstd import Zstd
from servers import ROOT, Moto, Nginx, moto, nginx

FIELD = DATA / "fzm/lq2d_f32_outliers.fzm"
ARRAY = DATA / "blosc2/o271_nd_2d.b2nd"
# The address of `fzmfs serve field.fzm` in the documents.
SERVED = "http://127.0.0.1:8700/3f2c.../"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        for name in ("field.fzm", "run.fzm"):
            shutil.copy(FIELD, server.root / name)
        shutil.copy(ARRAY, server.root / "field.b2nd")
        yield server


@pytest.fixture(scope="module")
def s3() -> Iterator[Moto]:
    with moto() as server:
        server.put("run.fzm", FIELD.read_bytes())
        server.put("runs/2024/a.fzm", FIELD.read_bytes())
        server.put("field.b2nd", ARRAY.read_bytes())
        yield server


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serving([program(), "serve", str(FIELD), "--listen", "127.0.0.1:0"]) as url:
        yield url


@contextmanager
def serving(command: list[str], **options: Any) -> Iterator[str]:
    """The address that ``fzmfs serve`` prints; it has to end well."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
    assert server.returncode == 0


class Place:
    """A directory with the files that the lines name, and paths of the root directory that lie in it."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self.home, self._request = folder, folder / "home", request
        for name in ("home/m", "home/mnt", "home/runs/2024", "home/logs", "mnt/x", "mnt/field", "mnt/runs", "data", "sbin", "scratch", "var/cache", "bin"):
            (folder / name).mkdir(parents=True)
        for name in ("field.fzm", "run.fzm", "runs/2024/a.fzm", "../data/field.fzm", "../data/run.fzm"):
            shutil.copy(FIELD, self.home / name)
        for name in ("array.b2nd", "run.b2nd", "field.b2nd", "runs/b.b2nd"):
            shutil.copy(ARRAY, self.home / name)
        shutil.copy(DATA / "ztensor/v12-pypi.zt", self.home / "model.zt")
        shutil.copy(DATA / "blosc2/stores/table.b2z", self.home)
        samples = np.linspace(0, 1, 512 * 512, dtype="f4").tobytes()
        text = b"INFO a\nERROR b\nINFO c\n"
        for name, content in [("log.txt.zst", text), ("samples.zst", samples), ("x.parquet.zst", b"PAR1")]:
            (self.home / name).write_bytes(Zstd(level=1).encode(content))
        shutil.copy(self.home / "log.txt.zst", self.home / "logs")
        (self.home / "work.py").write_text(
            "import os, sys, numpy\n"
            "print(numpy.load(f'{sys.argv[1]}/data.npy', mmap_mode='r').mean())\n"
            "open('daemon', 'wb').write(os.getxattr(sys.argv[1], 'user.fzmfs.daemon.pid'))\n"
        )
        for wheel in (ROOT / "target/python").glob("fzmfs-*.whl"):
            (self.home / wheel.name).symlink_to(wheel)
        self.bin(fzmfs=program(), **{"mount.fzmfs": program()})
        self.bin(sudo='exec "$@"', pip='exec python3 -m pip "$@"')

    def exports(self) -> None:
        """A log, tables, a database and an archive, compressed."""
        import pyarrow
        import pyarrow.parquet

        plain, packed = self.folder / "exports", self.home / "exports"
        (plain / "src").mkdir(parents=True)
        packed.mkdir()
        (plain / "app.log").write_text("INFO a\nERROR b\nINFO c\n")
        for year in (2025, 2026):
            pyarrow.parquet.write_table(pyarrow.table({"year": [year] * 5}), plain / f"{year}.parquet")
        with sqlite3.connect(plain / "run.db") as base:
            base.execute("create table t as select 1")
        base.close()
        (plain / "src/main.c").write_text("int main(void) { return 0; }\n")
        with tarfile.open(plain / "code.tar", "w") as archive:
            archive.add(plain / "src", "src")
        for path in filter(Path.is_file, plain.iterdir()):
            (packed / f"{path.name}.zst").write_bytes(Zstd(level=1).encode(path.read_bytes()))
        # The module of Python as the program.
        self.bin(duckdb="exec python3 -c 'import sys, duckdb; print(duckdb.sql(sys.argv[2]))' \"$@\"")

    def bin(self, **programs: str) -> None:
        """Puts programs, or lines of a shell, where they are found first."""
        for name, what in programs.items():
            path = self.folder / "bin" / name
            if what.startswith("/"):
                path.symlink_to(what)
            else:
                path.write_text(f"#!/bin/sh\n{what}\n")
                path.chmod(0o755)

    def put(self, text: str) -> str:
        """``text`` with our paths and servers for those that it names."""
        text = re.sub(r"(?<![\w.])(?<!:/)/(mnt|data|sbin|scratch|var)\b", rf"{self.folder}/\1", text)
        if "https://" in text:
            web = self._request.getfixturevalue("web")
            text = re.sub(r"https://(host|server)\b", web.url, text)
        if SERVED in text:
            text = text.replace(SERVED, self._request.getfixturevalue("served"))
        return text.replace("ETAG", f'"{hashlib.md5(ARRAY.read_bytes()).hexdigest()}"')

    def environment(self, text: str) -> dict[str, str]:
        variables = {
            "PATH": f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_PROXY": "127.0.0.1",
            # Of pip: what is installed stays, and nothing is fetched.
            "PIP_DRY_RUN": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.home),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            # Of rclone, which says that there is none.
            "RCLONE_CONFIG": "",
            # Of man.
            "MANPATH": f"{self.folder}/man",
        }
        if "s3" in text or "aws" in text:
            variables["AWS_ENDPOINT_URL"] = self._request.getfixturevalue("s3").endpoint
            variables |= {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
            variables |= {"AWS_ACCESS_KEY_ID": "IDIDID", "AWS_SECRET_ACCESS_KEY": "SECRET"}
        return variables

    def run(self, text: str, cwd: Path | None = None, **more: str) -> str:
        """Runs lines in one shell. All have to succeed, and say nothing on standard error."""
        if "allow_other" in text and os.geteuid() != 0:
            pytest.skip("not root: /etc/fuse.conf may not have user_allow_other")
        environment = os.environ | self.environment(text) | more
        command = ["bash", "-euo", "pipefail", "-c", self.put(text)]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace", "timeout": 300}
        done = subprocess.run(command, cwd=cwd or self.home, env=environment, **options)
        assert (done.returncode, done.stderr) == (0, ""), f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, line: str) -> None:
        """Runs a line that serves until it is stopped; at any port, since several of these tests run at a time."""
        line, _, _ = line.partition("#")
        line = line.replace(":8700", ":0") if "--listen" in line else f"{line} --listen 127.0.0.1:0"
        with serving(shlex.split(line), cwd=self.home, env=os.environ | self.environment(line)) as url:
            assert url.startswith("http://")

    def mounts(self) -> list[str]:
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [point for point in points if point.startswith(f"{self.folder}/")]

    def unmount(self) -> None:
        # One in a namespace of its own would keep there what is mounted here, too.
        if (daemon := self.home / "daemon").exists():
            os.kill(int(daemon.read_text()), signal.SIGTERM)
        for point in reversed(self.mounts()):
            subprocess.run([program(), "umount", point], check=True, timeout=60)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(tmp_path, request)
    yield made
    made.unmount()


def use(result: Any) -> None:
    """Reads what was opened, so that it has to be there."""
    if isinstance(result, fsspec.core.OpenFile):
        with result as file:
            assert file.read(100)
    elif isinstance(result, xarray.Dataset):
        assert result.load().sizes
    elif isinstance(result, zarr.Group):
        assert [array[...].size for _, array in result.arrays()]
    elif isinstance(result, dask.array.Array):
        result.sum().compute()


def execute(text: str, names: dict[str, Any]) -> Any:
    """Runs lines of Python; returns what the last one gives."""
    result = None
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Expr):
            result = eval(compile(ast.Expression(statement.value), text, "eval"), names)
            use(result)
        else:
            exec(compile(ast.Module([statement], []), text, "exec"), names)
    return result
