"""The tour, tests/examples/tour.ipynb, from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbconvert
import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

TOUR = Path(__file__).parents[1] / "examples/tour.ipynb"


def test_the_tour_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the notebook leaves behind, it leaves here.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(TOUR, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "committed without outputs"
    # An exception in a cell is one here.
    execute = ExecutePreprocessor(timeout=300, kernel_name="python3")
    execute.preprocess(notebook, {"metadata": {"path": str(TOUR.parent)}})
    outputs = [output for cell in code for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    tables = [output for output in outputs if "text/html" in output.get("data", {})]
    assert len(pictures) >= 3 and len(tables) >= 4
    assert not [output for output in outputs if output.output_type == "stream" and output.name == "stderr"], "warnings"
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert "fzmfs.Archive" in page
