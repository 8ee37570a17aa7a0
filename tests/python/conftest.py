"""What all tests use: the corpora of tests/data, and containers made for a test."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

# A shell without job control starts what runs beside it with SIGINT ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The index of the program under test is not that of the user.
_HOME = tempfile.TemporaryDirectory()
os.environ |= {"XDG_CACHE_HOME": f"{_HOME.name}/cache", "XDG_STATE_HOME": f"{_HOME.name}/state"}

DATA = Path(__file__).parents[1] / "data"
# Seconds after which a wait is a hang, and the test fails. No test passes or fails by how much sooner something happens.
PATIENCE = 120
# Cases of a property, as those in Rust have them.
CASES = int(os.environ.get("PROPTEST_CASES", "256"))


def manifest(folder: str, rows: str) -> list[dict]:
    return json.loads((DATA / folder / "MANIFEST.json").read_text())[rows]


def sha256(content: object) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def b2nd() -> str:
    """An array of 5 x 4 x 6 x 3 x 7 32-bit floats in several chunks and blocks."""
    return str(DATA / "blosc2/n05_5d_f4.b2nd")
