"""Builds the wheel for pip: maturin's module, and the program beside it.

maturin packs either programs or a module; what lies in fzmfs.data/scripts it packs as programs. scripts/package puts one
there that runs on older systems.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin
from maturin import *  # noqa: F403  the hooks that need no program

_ROOT = Path(__file__).parents[2]
_SCRIPTS = Path(__file__).parent / "fzmfs.data" / "scripts"
# Every hook of maturin wants the folder to exist.
_SCRIPTS.parent.mkdir(exist_ok=True)


def build_wheel(directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """The hook of PEP 517."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target"))
    subprocess.run(["cargo", "build", "--release", "--bin", "fzmfs", "--target-dir", target], cwd=_ROOT, check=True)
    _SCRIPTS.mkdir(exist_ok=True)
    shutil.copy(target / "release" / "fzmfs", _SCRIPTS)
    try:
        wheel: str = maturin.build_wheel(directory, settings, metadata)
        return wheel
    finally:
        shutil.rmtree(_SCRIPTS)
