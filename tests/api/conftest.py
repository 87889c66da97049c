"""One investigation of a unit of a user's own module, shared by the tests."""

from pathlib import Path
from typing import Any

import pytest

import openmaia
from tests.helpers.mine import TRANSFORM, redness
from tests.prepare import CACHE


@pytest.fixture(scope="session")
def photos(settings: list[str]) -> list[Path]:
    """Forty packaged photographs."""
    return sorted((CACHE / "packages-v1/photos").rglob("*.jpg"))[:40]


@pytest.fixture(scope="session")
def places(exemplars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Overrides that keep the results of a test in its own folders, and make it short."""
    return {
        "paths": {
            "cache": str(CACHE),
            "exemplars": str(exemplars_folder / "api"),
            "runs": str(tmp_path_factory.mktemp("runs")),
        },
        "exemplars.k": 6,
        "evaluate.n": 6,
        "evaluate.pictures": 8,
    }


@pytest.fixture(scope="session")
def result(photos: list[Path], places: dict[str, Any]) -> openmaia.UnitResult:
    return openmaia.investigate(redness(), "maps", 0, images=photos, preprocess=TRANSFORM, **places)
