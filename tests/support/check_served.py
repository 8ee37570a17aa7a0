"""What clients read from `fzmfs serve`: check_served.py PROGRAM FOLDER; see scripts/serve-clients."""

import datetime
import io
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

import blosc2
import duckdb
import fsspec
import numpy
import tensorstore
import xarray
import zarr
import zstandard
from fsspec.implementations.http import HTTPFileSystem

PROGRAM, MADE = sys.argv[1:]
SHAPE, CHUNKS = (64, 256, 256), (8, 256, 256)
failed = []


def check(name, test):
    """Runs `test`; says whether it has passed."""
    try:
        print(f"{name}: ok, {test()}", flush=True)
    except BaseException as e:  # what a client raises is its own matter
        failed.append(name)
        print(f"{name}: FAILED, {type(e).__name__}: {e}", flush=True)


def refuses(read):
    """What a client says of a broken chunk."""
    try:
        got = read()
    except Exception as e:
        return f"broken: {type(e).__name__}: {str(e).splitlines()[0][:90]}"
    raise AssertionError(f"it took a broken chunk for {numpy.asarray(got).ravel()[:4]}")


class Server:
    def __init__(self, source, *options):
        words = [PROGRAM, "serve", str(source), "--listen", "127.0.0.1:0", *options]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.child.stdout.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        assert self.child.wait() == 0


def make(work):
    """A volume, the same with a broken chunk in the middle, a table; and what is in them."""
    want = numpy.arange(numpy.prod(SHAPE), dtype="f4").reshape(SHAPE)
    good = work / "volume.b2nd"
    blosc2.asarray(want, chunks=CHUNKS, urlpath=str(good), cparams={"codec": blosc2.Codec.ZSTD})
    broken = bytearray(good.read_bytes())
    at = len(broken) // 2
    broken[at : at + len(broken) // 16] = b"\xff" * (len(broken) // 16)
    (work / "broken.b2nd").write_bytes(broken)
    shutil.copy("tests/data/fzm/lq1d_f32_noa_rle.fzm", work)
    table = str(work / "table.parquet")
    duckdb.sql(f"copy (select i, i * i as square from range(200000) t(i)) to '{table}' (row_group_size 10000)")
    packed = zstandard.ZstdCompressor().compress(pathlib.Path(table).read_bytes())
    (work / "table.parquet.zst").write_bytes(packed)
    return want


def arrays(url, want):
    """Readers of Zarr."""
    good, broken = f"{url}volume.b2nd/data.zarr", f"{url}broken.b2nd/data.zarr"

    def same(got):
        assert numpy.array_equal(numpy.asarray(got), want)
        return f"{want.nbytes >> 20} MiB equal; "

    def with_zarr():
        first = zarr.open_group(broken, mode="r")["data"][:8]
        assert numpy.array_equal(first, want[:8]), "chunks beside the broken one are whole"
        read = lambda: zarr.open_group(broken, mode="r")["data"][:]
        return same(zarr.open_group(good, mode="r")["data"][:]) + refuses(read)

    def with_tensorstore():
        def read(at):
            spec = {"driver": "zarr3", "kvstore": f"{at}/data/", "context": {"http_request_retries": {"max_retries": 1}}}
            return tensorstore.open(spec).result().read().result()

        return same(read(good)) + refuses(lambda: read(broken))

    def with_xarray():
        read = lambda at: xarray.open_zarr(at)["data"].values
        return same(read(good)) + refuses(lambda: read(broken))

    def with_zarrita():
        if not os.path.isdir(f"{MADE}/node_modules/zarrita"):
            return "SKIPPED, npm is out of reach"

        def read(at):
            words = ["node", f"{MADE}/check_served.mjs", at, "data"]
            return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=MADE).stdout)

        got, bad = read(good), read(broken)
        assert tuple(got["shape"]) == SHAPE and got["sum"] == want.astype("f8").sum(), got
        assert "error" in bad, bad
        return f"{got['shape']} equal; broken: {bad['error'][:90]}"

    check(f"zarr {zarr.__version__}, fsspec {fsspec.__version__}", with_zarr)
    check("TensorStore", with_tensorstore)
    check(f"xarray {xarray.__version__}", with_xarray)
    check("zarrita", with_zarrita)


def files(url, want, work):
    """Readers of ranges and of whole files."""

    def with_fsspec():
        with fsspec.open(f"{url}volume.b2nd/data.raw", block_size=1 << 16) as file:
            for at in range(0, want.nbytes, want.nbytes // 37):
                file.seek(at)
                assert file.read(1000) == want.tobytes()[at : at + 1000]
        return "37 ranges equal"

    def with_duckdb():
        class Http(HTTPFileSystem):
            """With what DuckDB asks besides; it keeps nothing that it has read by that."""

            def modified(self, path):
                return datetime.datetime.fromtimestamp(0)

        duckdb.register_filesystem(Http())
        for name in "table.parquet", "table.parquet.zst/data.raw":
            sum_, count = duckdb.sql(f"select sum(square), count(*) from read_parquet('{url}{name}')").fetchall()[0]
            assert (sum_, count) == (sum(i * i for i in range(200000)), 200000), name
        return "a table, and the same compressed"

    def with_rclone():
        out = work / "copied"
        words = ["rclone", "--quiet", "copy", "--retries", "1", ":http:", str(out), "--http-url"]
        subprocess.run([*words, f"{url}lq1d_f32_noa_rle.fzm/"], check=True)
        count = 0
        for file in out.rglob("*"):
            if file.is_file():
                cat = [PROGRAM, "cat", str(work / "served/lq1d_f32_noa_rle.fzm"), str(file.relative_to(out))]
                assert file.read_bytes() == subprocess.run(cat, stdout=subprocess.PIPE, check=True).stdout, file
                count += 1
        assert count > 20
        failed = subprocess.run([*words, f"{url}broken.b2nd/"], stderr=subprocess.PIPE, text=True)
        assert failed.returncode != 0
        return f"{count} files equal; of a broken one: {failed.stderr.splitlines()[0][-60:]}"

    def with_curl():
        words = ["curl", "-sS", "-r", "4000-", f"{url}volume.b2nd/data.raw"]
        assert subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout == want.tobytes()[4000:]
        words = ["curl", "-sS", "-o", "/dev/null", f"{url}broken.b2nd/data.raw"]
        broken = subprocess.run(words, stderr=subprocess.PIPE, text=True)
        assert broken.returncode == 18, broken
        return f"a range equal; broken in the middle: {broken.stderr.strip()}"

    check("fsspec, by ranges", with_fsspec)
    check(f"DuckDB {duckdb.__version__}, through fsspec", with_duckdb)
    check("rclone", with_rclone) if shutil.which("rclone") else print("SKIPPED rclone: not installed")
    check("curl", with_curl)


def itself(work, want):
    """fzmfs on its own URLs."""

    def test():
        with Server(work, "-o", "layout=beside") as server:
            url = f"{server.url}volume.b2nd"
            cat = subprocess.run([PROGRAM, "cat", url, "data.raw"], stdout=subprocess.PIPE, check=True).stdout
            assert cat == want.tobytes()
            if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
                return "cat equal; SKIPPED the mount: takes root and /dev/fuse"
            with tempfile.TemporaryDirectory() as point:
                subprocess.run([PROGRAM, "mount", url, point], check=True)
                try:
                    assert numpy.array_equal(numpy.load(f"{point}/data.npy", mmap_mode="r"), want)
                finally:
                    subprocess.run([PROGRAM, "umount", point], check=True)
            return "cat and a mount equal"

    check("fzmfs", test)


def crowd(url, child):
    """More clients that take nothing than there is room for in memory, then more than there are connections."""

    def test():
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        count = min(4000, most - 200)
        host, port = url.split("/")[2].split(":")
        path = "/" + url.split("/", 3)[3] + "volume.b2nd/data.raw"
        slow = []
        for _ in range(count):
            one = socket.create_connection((host, int(port)))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
            slow.append(one)
        with urllib.request.urlopen(f"{url}lq1d_f32_noa_rle.fzm/info.json", timeout=60) as reply:
            assert json.load(io.TextIOWrapper(reply))["format"] == "fzm"
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
        for one in slow:
            one.close()
        with urllib.request.urlopen(f"{url}volume.b2nd/data.raw", timeout=60) as reply:
            assert len(reply.read()) == 4 * numpy.prod(SHAPE)
        return f"{count} clients that take nothing, others are answered; peak {int(peak) >> 10} MiB"

    check("slow clients", test)


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "served"
        work.mkdir()
        want = make(work)
        with Server(work, "--cache", "64M") as server:
            arrays(server.url, want)
            files(server.url, want, pathlib.Path(folder))
            crowd(server.url, server.child)
        itself(work, want)
    return len(failed)


sys.exit(main())
