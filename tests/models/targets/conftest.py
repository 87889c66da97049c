"""Grounding DINO and SAM with random weights, made once for each file that needs them."""

import pytest


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.helpers.tiny import detection

    return detection.grounding_dino(tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.helpers.tiny import detection

    return detection.sam(tmp_path_factory.mktemp("segmenter"))
