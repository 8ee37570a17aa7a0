"""`zarr_store` as zarr-python tests stores: every case that reads, with the keys that it wants, over a real container."""

from __future__ import annotations

import asyncio
import functools
import inspect
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA
from zarr.core.buffer import cpu

pytest.importorskip("zarr.testing.store", reason="zarr.testing wants more than is installed")
from zarr.testing.store import StoreTests

import fzmfs
from fzmfs._zarr import ZarrStore

# What they test is writing.
WRITES = {
    "test_clear",
    "test_delete",
    "test_delete_dir",
    "test_delete_nonexistent_key_does_not_raise",
    "test_delete_sync",
    "test_delete_sync_missing",
    "test_delete_sync_visible_to_async_get",
    "test_set",
    "test_set_if_not_exists",
    "test_set_many",
    "test_set_not_open",
    "test_set_sync",
}


class Filled(ZarrStore):
    """The store, of a container that the tests can add keys to: each is a member of an archive of Blosc2."""

    _root = "keys/"

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        self.members = {"first.b2nd": (DATA / "blosc2/n01_1d_i4.b2nd").read_bytes()}
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                self.members = {name: archive.read(name) for name in archive.namelist()}
        else:
            self.write()
        super().__init__(fzmfs.open(path), owned=True, read_only=read_only)

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.read_only)

    def write(self) -> None:
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED) as archive:
            for name, content in self.members.items():
                archive.writestr(name, content)

    async def set(self, key: str, value: Any) -> None:
        self.set_sync(key, value)

    def set_sync(self, key: str, value: Any) -> None:
        if self.read_only:
            super().set_sync(key, value)
        self.members[self._root + key] = value.to_bytes()
        self.write()
        self._archive = fzmfs.open(self.path)


class TestStore(StoreTests):
    store_cls = Filled
    buffer_cls = cpu.Buffer

    async def set(self, store: Filled, key: str, value: Any) -> None:
        store.set_sync(key, value)

    async def get(self, store: Filled, key: str) -> Any:
        return self.buffer_cls.from_bytes(store.members[store._root + key])

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"path": tmp_path / "x.b2z"}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> Filled:
        return asyncio.run(Filled.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> Filled:
        return Filled(**store_kwargs)

    def test_store_repr(self, store: Filled) -> None:
        assert "x.b2z" in repr(store) and "x.b2z" in str(store)

    def test_store_supports_writes(self, store: Filled) -> None:
        assert not store.supports_writes and not store.supports_deletes

    def test_store_supports_listing(self, store: Filled) -> None:
        assert store.supports_listing


def in_a_loop(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


for name, case in inspect.getmembers(StoreTests, inspect.isfunction):
    if name in WRITES:
        setattr(TestStore, name, None)
    elif name.startswith("test_") and inspect.iscoroutinefunction(case):
        setattr(TestStore, name, in_a_loop(case))
