"""Stores that python-blosc2 wrote: the keys and values that it gives."""

from __future__ import annotations

import fzmfs
import numpy as np
import pytest
from conftest import DATA

blosc2 = pytest.importorskip("blosc2")
if not hasattr(blosc2, "TreeStore"):
    pytest.skip("this blosc2 has no stores", allow_module_level=True)


def own(store) -> dict[str, np.ndarray]:
    """The leaves of `store`, as its library reads them."""
    leaves = {key.lstrip("/"): store[key] for key in store.keys()}  # noqa: SIM118 - it is not a dict
    leaves = {key: leaf for key, leaf in leaves.items() if hasattr(leaf, "nbytes") and not isinstance(leaf, blosc2.TreeStore)}
    return {key: leaf[:] if hasattr(leaf, "dtype") else np.frombuffer(leaf[:], "u1") for key, leaf in leaves.items()}


@pytest.mark.parametrize("name", ["tree.b2z", "store.b2e"])
def test_a_store_has_the_keys_and_values_of_its_library(name: str) -> None:
    path = str(DATA / "blosc2/stores" / name)
    store = blosc2.TreeStore(path, mode="r") if name.endswith("z") else blosc2.EmbedStore(path, mode="r")
    want = own(store)
    with fzmfs.open(path) as archive:
        got = {key.removesuffix("/data"): array[...] for key, array in archive.items()}
    assert len(want) > 2 and set(got) == set(want)
    for key, values in want.items():
        assert got[key].dtype == values.dtype and np.array_equal(got[key], values), key
