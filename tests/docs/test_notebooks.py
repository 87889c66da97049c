"""The notebooks of the documentation, executed cell by cell."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    found = importlib.util.spec_from_file_location("notebooks", REPOSITORY / "docs/site/notebooks.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-investigation", pytest.param("analysing-a-run", marks=pytest.mark.nightly)])
def test_notebook_runs_to_its_last_cell(
    notebooks: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])))
    executed = tmp_path / f"{name}.ipynb"
    notebooks.execute(REPOSITORY / f"docs/notebooks/{name}.ipynb", executed, timeout=600)
    import nbformat

    cells = [cell for cell in nbformat.read(executed, as_version=4).cells if cell.cell_type == "code"]
    assert cells and all(cell.execution_count for cell in cells)
    assert any(output.get("data", {}).get("text/html") for cell in cells for output in cell.outputs)
