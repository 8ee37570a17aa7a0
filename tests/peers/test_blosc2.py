"""The files that c-blosc2 keeps of older versions of itself and of Blosc, as python-blosc2 decodes them."""

from __future__ import annotations

from pathlib import Path

import blosc2
import numpy as np
import pytest
from conftest import cat, run, source

FILES = sorted(path for path in (source("C_BLOSC2") / "compat").iterdir() if path.suffix in (".cdata", ".b2frame"))


def decoded(path: Path) -> bytes:
    if path.suffix == ".cdata":
        return bytes(blosc2.decompress2(path.read_bytes()))
    frame = blosc2.open(str(path), mode="r")
    frame = getattr(frame, "schunk", frame)
    return b"".join(bytes(frame.decompress_chunk(number)) for number in range(frame.nchunks))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_an_older_version_decodes_as_blosc2_decodes_it(path: Path) -> None:
    if path.name.startswith(("shuffle", "bitshuffle")):
        pytest.skip("the output of a filter alone, in no chunk")
    is_chunk = path.suffix == ".cdata"
    options = ["--format", "blosc2"] if is_chunk else []
    found, want = cat(path, "data.raw", *options), decoded(path)
    assert len(found) == len(want)
    # Versions of Blosc wrote no defined bytes after the last eight items, and its own check leaves them out too.
    defined = len(want) - len(want) % 8 if "-bitshuffle" in path.name else len(want)
    assert found[:defined] == want[:defined]
    if is_chunk:
        assert found[:defined] == np.arange(len(want) // 4 + 1, dtype="<i4").tobytes()[:defined]
    assert cat(path, "data.raw", *options) == found
    assert run("verify", *options, path).returncode == 0
