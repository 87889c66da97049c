"""Services of an evaluation that need no GPU: collages, and units of closed form."""

import pytest
from PIL import Image

from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.services import EvaluationServices
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.evaluation.prompts import RulePromptWriter


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> CollageGenerator:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return CollageGenerator(ImageDataset.open(folder), 224)


@pytest.fixture(scope="session")
def services(generator: CollageGenerator) -> EvaluationServices:
    return EvaluationServices(generator=generator, target=ClosedFormTarget("t"), writer=RulePromptWriter())
