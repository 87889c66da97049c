"""How the images of a data set are divided, and drawing a small one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from openmaia.config.loading import load
from openmaia.config.studies import SpuriousConfig
from openmaia.core.errors import UsageError
from openmaia.core.services import GeneratedImage, Generation, Generator
from openmaia.datasets.library import ImageDataset
from openmaia.offline.collage import CollageGenerator
from openmaia.recipes.spurious import data, study
from openmaia.runs.files import Files
from tests.conftest import REPOSITORY
from tests.prepare import packages

SMALL = REPOSITORY / "configs/spurious-small.yaml"


@pytest.fixture
def asked() -> SpuriousConfig:
    return load([str(SMALL), "spurious.per_cell=8", "spurious.pool=64", "spurious.balanced=32"]).spurious


@pytest.fixture
def tree(asked: SpuriousConfig, tmp_path: Path) -> Path:
    """A data set in which every image has a colour of its own."""
    level = 0
    for cell, count in sorted(data.count_wanted(asked).items()):
        folder = tmp_path / cell.folder
        folder.mkdir(parents=True)
        for number in range(count):
            level += 1
            Image.new("RGB", (8, 8), (level % 256, level // 256, 0)).save(folder / f"{number}.png")
    return tmp_path


def test_default_counts_are_those_of_the_paper():
    asked = SpuriousConfig()
    total = sum(data.count_training(asked).values())
    held = round(asked.validation * total)
    assert (total - held, held) == (22_810, 2_534)


def test_splits_are_disjoint(asked: SpuriousConfig, tree: Path):
    splits = data.divide(tree, asked, seed=0)
    paths = [one.path for part in (splits.train, splits.validation, splits.test, splits.pool) for one in part]
    assert len(set(paths)) == len(paths)


def test_folder_of_pool_and_test_has_images_for_both(asked: SpuriousConfig):
    """A large pool takes more images of a folder than the test of few images asks for."""
    asked = replace(asked, per_cell=8, pool=64 * 16)
    for cell, count in data.count_wanted(asked).items():
        is_shared = cell.environment == 1 and (cell.label, cell.location) in zip(
            asked.classes, asked.test_locations, strict=True
        )
        assert not is_shared or count > asked.pool // len(asked.classes) ** 2


def test_places_are_exchanged_one_to_one(asked: SpuriousConfig, tree: Path):
    splits = data.divide(tree, asked, seed=0)
    usual = {(asked.classes[one.label], one.location) for one in splits.train if one.location != asked.filler}
    shifted = {(asked.classes[one.label], one.location) for one in splits.test}
    assert usual == set(zip(asked.classes, asked.train_locations, strict=True))
    assert shifted == set(zip(asked.classes, asked.test_locations, strict=True))


def test_pool_is_balanced(asked: SpuriousConfig, tree: Path):
    cells = [(one.label, one.location) for one in data.divide(tree, asked, seed=0).pool]
    assert len(set(cells)) == 16
    assert {cells.count(cell) for cell in cells} == {asked.pool // 16}


def test_missing_cell_is_refused(asked: SpuriousConfig, tree: Path):
    folder = tree / "spawrious224/1/sand/fish"
    folder.rename(tree / "elsewhere")
    with pytest.raises(UsageError, match="spawrious224/1/sand/fish is missing, and 4 are needed"):
        data.divide(tree, asked, seed=0)


def test_single_class_is_refused(asked: SpuriousConfig, tree: Path):
    with pytest.raises(UsageError, match="validation images .1. show no "):
        data.divide(tree, replace(asked, validation=0.001), seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["bird"]}, "at least two classes"),
        ({"test_locations": ["sand", "grass", "wood", "snow"]}, "no class keeps its place"),
        ({"balanced": 30}, "multiple of 32"),
        ({"filler": "../beach"}, "cannot be the name of a folder"),
        ({"classes": ["bird", ".hidden", "cat", "dog"]}, "cannot be the name of a folder"),
        ({"filler": "snow"}, "images of the test would be trained on"),
        ({"train_locations": ["sand", "sand", "wood", "snow"]}, "a place of its own"),
    ],
)
def test_invalid_shift_is_refused(asked: SpuriousConfig, change: dict[str, object], message: str):
    with pytest.raises(UsageError, match=message):
        data.check(replace(asked, **change))  # pyright: ignore[reportArgumentType]


class RecordingGenerator:
    """Records the parts and the digests of the images that a generator makes."""

    def __init__(self, generator: Generator):
        self._generator, self.sources, self.digests = generator, set[str](), set[str]()

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        images = self._generator.generate(requests)
        self.sources |= {source for made in images for source in made.image.sources}
        self.digests |= {made.image.digest for made in images}
        return images


def test_data_set_and_agent_use_disjoint_parts(tmp_path: Path):
    library = ImageDataset.open(packages())
    config = load([str(SMALL), "spurious.per_cell=4", "spurious.pool=32", "spurious.balanced=32", "generator.size=48"])
    drawn, agents = (RecordingGenerator(CollageGenerator(library, 48)) for _ in range(2))
    data.draw(Files(str(tmp_path)), config.spurious, drawn, lambda done, total: None)
    study.draw_probe(replace(config.spurious, probe=3), agents, run_seed=0)
    assert len(drawn.sources) > 20 and len(agents.sources) > 20
    assert not drawn.sources & agents.sources
    assert not drawn.digests & agents.digests
    assert agents.sources <= {item.digest for item in library.items if item.split == "explore"}


def test_prompt_is_the_template_with_words_as_they_are():
    assert (
        data.make_prompt("owl", "at {class} dusk", "{class} in the meadow {location}")
        == "an owl in the meadow at {class} dusk"
    )


@pytest.mark.parametrize("template", ["a boat on {location}", "{class} on sand", "{class} on {location} or {location}"])
def test_template_without_class_or_location_once_is_refused(asked: SpuriousConfig, template: str):
    with pytest.raises(UsageError, match="once each"):
        data.check(replace(asked, prompt=template))
