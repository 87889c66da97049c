"""A recorded investigation, which other ways in repeat."""

from pathlib import Path

import pytest

from tests.agent.conftest import Investigate, run
from tests.helpers.investigating import LISTED, TESTED, code, pictures, sources

__all__ = ["pictures", "run"]

LOOKED = code("for activation, image in tools.dataset_exemplars(system):\n    tools.display(activation, image)")
EDITED = code(
    "edited, captions = tools.edit_images([own[0], 'a blue star'], ['make it blue', 'make it red'])\n"
    "print(system.call_neuron(edited, hypothesis=['H1', 'not H1', 'not H1', 'H1'])[0])\n"
    "tools.display(*edited)"
)
REPLIES = (LOOKED, TESTED, EDITED, LISTED)


@pytest.fixture
def replies() -> tuple[str, ...]:
    return REPLIES


@pytest.fixture
def given(pictures: Path, exemplars_folder: Path, tmp_path: Path) -> list[str]:
    """The config of `recorded`, without its backbone, and with a folder for runs."""
    return [*sources(pictures, exemplars_folder), f"paths.runs={tmp_path / 'runs'}"]


@pytest.fixture
def recorded(run: Investigate):
    """The record of an investigation whose backbone gave these replies."""
    return run(*REPLIES)
