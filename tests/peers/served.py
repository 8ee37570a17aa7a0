"""A plugin of pytest that has zarr-http-server's tests ask `fzmfs serve`: a store is a folder of plain files that it serves.

What they test besides serving what is stored (keys that a node hides, writing, options of their server) is skipped.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import starlette.testclient
import zarr_http_server._serve as theirs
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

NODES = "it serves every file: there are no nodes that hide others"
OPTIONS = "an option of their server"
# Cases by parts of their ids, and why they are not asked of another server.
OTHERS = {
    "non_zarr_key": NODES,
    "out_of_bounds_chunk": NODES,
    "out_of_shard_grid": NODES,
    "wrong_arity": NODES,
    "does_not_claim_the_other_kind": NODES,
    "colon_named_node_in_the_first_segment": NODES,
    "child_with_unparseable_metadata": NODES,
    "TestParseRangeHeader": "a function of their server",
    "TestServeBackground": OPTIONS,
    "TestBackgroundServer": OPTIONS,
    "TestPortSelection": OPTIONS,
    "TestUvicornOptions": OPTIONS,
    "TestMethodSetConstants": OPTIONS,
    "TestServeAnyApp": OPTIONS,
    "TestReadBackWithZarrClient": "scripts/serve-clients reads with zarr-python",
    "test_empty_method_set_raises": OPTIONS,
    "test_unsupported_method_raises": OPTIONS,
    "test_post_can_never_be_enabled": OPTIONS,
    "test_caller_value_replaces": OPTIONS,
    "test_parameters_beyond": OPTIONS,
    "TestCorsAllowMethods": OPTIONS,
    "TestGenericStoreFailures": "the store of the test itself fails",
}
# Cases that fail, by parts of their ids, and why fzmfs is right.
DIFFERENT = {
    "test_empty_path_returns_404": "a directory is a page, JSON or PROPFIND",
    "test_206_carries_content_range": "Content-Range tells the length of the whole too, as RFC 9110 wants: bytes 2-5/10",
    "test_inverted_range_is_416": "a range whose end is before its start is not a range (RFC 9110, 14.1.1), and is ignored",
    "test_ranged_response_is_readable_cross_origin": "more headers than Content-Range are exposed",
    "test_range_survives_a_preflight": "range is allowed, in lower case: names of headers have no case",
    "test_metadata_is_served_as_json[2": "application/json is for .json alone, and for what fzmfs makes: Zarr 3",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for part, why in OTHERS.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=why))
        for part, why in DIFFERENT.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=why, strict=True))


class App:
    """What they make an application of: a store, or the part of it below a node."""

    def __init__(self, store: Any, prefix: str, methods: Any, cors: Any) -> None:
        self.store, self.prefix, self.cors = store, prefix, cors
        if methods and not set(methods) <= {"GET", "HEAD"}:
            pytest.skip("it writes")


def store_app(store: Any, *, methods: Any = None, cors_options: Any = None, **other: Any) -> App:
    return App(store, "", methods, cors_options)


def node_app(node: Any, *, methods: Any = None, cors_options: Any = None, **other: Any) -> App:
    return App(node.store_path.store, node.store_path.path, methods, cors_options)


async def _content(store: Any, prefix: str) -> dict[str, bytes]:
    keys = [key async for key in store.list_prefix(f"{prefix}/" if prefix else "")]
    return {key.removeprefix(prefix).lstrip("/"): (await store.get(key, default_buffer_prototype())).to_bytes() for key in keys}


class Client:
    """Asks a server that is started for the question, with what is stored then."""

    def __init__(self, app: Any, **_: Any) -> None:
        if not isinstance(app, App):
            pytest.skip("several applications in one")
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "served"
            if isinstance(self.app.store, LocalStore):
                root = Path(self.app.store.root) / self.app.prefix
                root.mkdir(parents=True, exist_ok=True)
            else:
                for key, value in asyncio.run(_content(self.app.store, self.app.prefix)).items():
                    (root / key).parent.mkdir(parents=True, exist_ok=True)
                    (root / key).write_bytes(value)
                root.mkdir(exist_ok=True)
            origins = [f"--allow-origin={origin}" for origin in (self.app.cors or {}).get("allow_origins", [])]
            command = [os.environ["FZMFS_PROGRAM"], "serve", str(root), "--listen", "127.0.0.1:0", "--no-token", *origins]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                address = server.stdout.readline().split()[-1].rstrip("/")  # type: ignore[union-attr]
                with httpx.Client(timeout=60) as client:
                    return client.request(method, f"{address}{path}", **options)
            finally:
                server.terminate()
                server.wait()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def head(self, path: str, **options: Any) -> httpx.Response:
        return self.request("HEAD", path, **options)

    def options(self, path: str, **options: Any) -> httpx.Response:
        return self.request("OPTIONS", path, **options)

    def put(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PUT", path, **options)


# Before the tests import them.
theirs.store_app, theirs.node_app = store_app, node_app
starlette.testclient.TestClient = Client  # type: ignore[misc,assignment]
