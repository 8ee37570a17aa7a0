"""Containers on servers: URLs where a path may stand."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import fsspec
import numpy as np
import pytest
import xarray
import zarr
from made import OPTIONS, frames
from servers import Moto, Nginx, moto, nginx

import fzmfs


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture(scope="module")
def s3() -> Iterator[Moto]:
    with moto() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "IDIDID")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def served(web: Nginx, b2nd: str) -> str:
    (web.root / "x.b2nd").write_bytes(Path(b2nd).read_bytes())
    web.take_log()
    return f"{web.url}/x.b2nd"


def test_an_object_reads_as_the_file_does(served: str, b2nd: str) -> None:
    with fzmfs.open(served) as far, fzmfs.open(b2nd) as near:
        # The attributes in zarr.json say which version it is.
        entries = [[(e.path, e.kind, e.path.endswith("zarr.json") or e.size) for e in a.files()] for a in (far, near)]
        assert entries[0] == entries[1] and far.info == near.info
        assert np.array_equal(far["data"][...], near["data"][...])
        assert far.source == served and "ETag" in far.identity
        far.verify()


def test_a_second_read_takes_no_requests_and_the_first_no_byte_twice(web: Nginx) -> None:
    data = frames(web.root / "field.zst")
    stored = (web.root / "field.zst").stat().st_size
    web.take_log()
    with fzmfs.open(f"{web.url}/field.zst", **OPTIONS) as archive:
        for _ in range(2):
            assert np.array_equal(archive["data"][:], data)
    sent = [int(line.split()[-1]) for line in web.take_log()]
    assert sum(sent) <= stored * 1.02 and len(sent) <= 8, sent


def test_what_was_read_before_is_on_disk(web: Nginx, served: str, tmp_path: Path) -> None:
    sent = []
    for cache in (tmp_path / "cache", f"{tmp_path}/cache:1G"):
        with fzmfs.open(served, remote_cache=cache) as archive:
            archive["data"][...]
        sent.append(sum(int(line.split()[-1]) for line in web.take_log()))
    assert sent[0] > 0 and sent[1] == 0


def test_copies_of_archives_and_arrays_open_the_url_again(served: str) -> None:
    with fzmfs.open(served, timeout=5.5) as archive:
        want = archive["data"][...]
        copy = pickle.loads(pickle.dumps(archive["data"]))
        assert np.array_equal(copy[...], want)


def test_an_object_that_was_replaced_is_no_longer_opened_or_read(web: Nginx, tmp_path: Path) -> None:
    name, url = web.root / "changing.zst", f"{web.url}/changing.zst"
    frames(name)
    archive = fzmfs.open(url, cache=1 << 20, **OPTIONS)
    copy = pickle.dumps(archive)
    archive["data"][0]
    frames(tmp_path / "other.zst")
    name.write_bytes((tmp_path / "other.zst").read_bytes() + b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd")
    with pytest.raises(fzmfs.Error) as caught:
        archive["data"][:]
    assert caught.value.kind == "changed"
    with pytest.raises(fzmfs.Error):
        pickle.loads(copy)


def test_errors_say_what_is_wrong_and_no_secret(web: Nginx, served: str) -> None:
    secret = served.replace("://", "://me:SECRET@") + "?X-Amz-Signature=SECRET"
    with fzmfs.open(secret) as archive:
        assert archive.source == served and "SECRET" not in repr(archive)
    for url, options, why in [
        (f"{web.url}/none", {}, "no such object"),
        (secret, {"expect": "abc"}, "not abc"),
        ("http://127.0.0.1:1/x", {"timeout": 60}, "cannot connect"),
    ]:
        with pytest.raises(fzmfs.Error) as caught:
            fzmfs.open(url, **options)
        assert why in str(caught.value) and "SECRET" not in str(caught.value)
    tag = fzmfs.open(served).identity.partition("ETag ")[2]
    fzmfs.open(served, expect=tag).close()
    fzmfs.open(served, unpinned=True).close()
    for wrong in ({"timeout": 0}, {"timeout": 1e9}, {"remote_cache": ""}, {"remote_cache": ":1G"}):
        with pytest.raises(ValueError):
            fzmfs.open(served, **wrong)


def test_an_object_that_does_not_exist_is_a_missing_file(web: Nginx) -> None:
    with pytest.raises(FileNotFoundError, match="no such object") as raised:
        fzmfs.open(f"{web.url}/nothing.b2nd")
    assert isinstance(raised.value, fzmfs.Error) and raised.value.kind == "missing"


def test_s3_and_the_other_packages(s3: Moto, b2nd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("some/x.b2nd", Path(b2nd).read_bytes())
    url = "s3://bucket/some/x.b2nd"
    with fzmfs.open(b2nd) as near, fzmfs.open(url) as far:
        want, raw = near["data"][...], near.read("data.raw")
        assert np.array_equal(far["data"][...], want)
    assert np.array_equal(zarr.open_group(fzmfs.zarr_store(url), mode="r")["data"][:], want)
    with xarray.open_dataset(url, engine="fzmfs") as dataset:
        assert np.array_equal(dataset["data"].values, want)
    # The scheme is that of the installed s3fs; the requests are ours.
    with fsspec.open(f"fzmfs://data.raw::{url}") as file:
        assert file.read() == raw
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    with fzmfs.open(url) as far:
        assert np.array_equal(far["data"][...], want)
    with pytest.raises(fzmfs.Error, match="no such object"):
        fzmfs.open("s3://bucket/none")


def test_a_prefix_of_s3_is_a_mapping_of_its_containers(s3: Moto, b2nd: str) -> None:
    for key in ("runs/a.b2nd", "runs/more/b.b2nd", "runs/notes.txt"):
        s3.put(key, Path(b2nd).read_bytes())
    want = fzmfs.open(b2nd)["data"][...]
    with fzmfs.open("s3://bucket/runs/") as runs:
        assert list(runs) == ["a.b2nd", "more"] and runs.source == "s3://bucket/runs/"
        assert np.array_equal(runs["a.b2nd"]["data"], want) and np.array_equal(runs["more/b.b2nd"]["data"], want)
        tree = xarray.open_datatree(runs, engine="fzmfs")
        assert np.array_equal(tree["more/b.b2nd/data"], want)
    with pytest.raises(fzmfs.Error):
        fzmfs.open("s3://bucket/none/")


def test_a_store_that_is_a_directory_has_the_keys_and_values_of_its_library(s3: Moto, tmp_path: Path) -> None:
    blosc2 = pytest.importorskip("blosc2")
    local = tmp_path / "x.b2d"
    large = np.random.default_rng(1).random((2000, 1000))
    small = np.arange(6).reshape(2, 3)
    with blosc2.TreeStore(str(local), mode="w", threshold=10_000) as store:
        store["/top"] = large
        store["/a/b c/large"] = large[:20]
        store["/a/small"] = small
        store.vlmeta["title"] = "a tree"
        store.get_subtree("/a").vlmeta["note"] = [1, 2]
    files = [path for path in local.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        s3.put(f"stores/x.b2d/{quote(str(path.relative_to(local)))}", path.read_bytes())
    want = {"top": large, "a/b c/large": large[:20], "a/small": small}
    for url in ("s3://bucket/stores/x.b2d/", "s3://bucket/stores/x.b2d"):
        with fzmfs.open(url) as far, fzmfs.open(str(local)) as near:
            got = {key.removesuffix("/data"): array[...] for key, array in far.items()}
            assert set(got) == set(want) and list(far) == list(near) and far.info == near.info
            assert all(np.array_equal(got[key], values) for key, values in want.items())
            assert far.info["attributes"] == {"title": "a tree"}
            far.verify()
        group = zarr.open_group(fzmfs.zarr_store(url), mode="r")
        assert group.attrs["title"] == "a tree" and group["a"].attrs["note"] == [1, 2]
        assert np.array_equal(group["a/b c/large"][:], large[:20])
    with fzmfs.open("s3://bucket/stores/") as stores:
        assert list(stores) == ["x.b2d"] and np.array_equal(stores["x.b2d"]["a/small/data"], small)

    # A leaf that was replaced is never mixed with what it was.
    changed = blosc2.asarray(large + 2, urlpath=str(tmp_path / "other.b2nd"))
    with fzmfs.open("s3://bucket/stores/x.b2d/") as far:
        assert np.array_equal(far["top/data"][0], large[0])
        before = far.identity
        s3.put("stores/x.b2d/top.b2nd", (tmp_path / "other.b2nd").read_bytes())
        with pytest.raises(fzmfs.Error, match="changed"):
            far["top/data"][-1]
    with fzmfs.open("s3://bucket/stores/x.b2d/") as far:
        assert np.array_equal(far["top/data"], changed[:]) and far.identity != before


def test_an_object_over_http_in_a_chain(served: str, b2nd: str) -> None:
    with fzmfs.open(b2nd) as near, fsspec.open(f"fzmfs://data.raw::{served}") as file:
        assert file.read() == near.read("data.raw")
