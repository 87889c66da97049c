"""Baselines: formulas by hand, budgets kept, and what they can and cannot find out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from measure.science.baselines import (
    Labelled,
    Means,
    chosen,
    cosine_cubed,
    dissected,
    exemplars_only,
    exhaustive,
    hypotheses,
    picture_order,
    random_words,
    searches,
)
from openmaia.core.images import EncodedImage, Pixels, whole
from openmaia.core.services import Exemplar, ExemplarKind, Probe, Services, UnitActivation, UnitExemplars
from openmaia.core.units import TargetInfo, Unit
from openmaia.datasets.library import ImageDataset
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.collage import CollageEditor, CollageGenerator
from openmaia.offline.vocabulary.words import WORDS

RED, HORIZONTAL = (Unit(target="t", layer="mono", index=index) for index in (0, 3))
RED_CIRCLE = Unit(target="t", layer="and", index=0)
RED_OR_HORIZONTAL = Unit(target="t", layer="or", index=0)


def plain(*colour: int) -> EncodedImage:
    return EncodedImage.of(np.full((64, 64, 3), colour, dtype=np.uint8))


def see(pixels: Pixels) -> Mapping[str, float]:
    """Eyes for red and blue alone."""
    red, _, blue = (pixels[..., channel].mean() / 255 for channel in range(3))
    return {word.name: 0.0 for word in WORDS} | {"red": float(red > blue), "blue": float(blue > red)}


class Shelf:
    """Exemplars made by hand."""

    def __init__(self, top: list[EncodedImage], chance: list[EncodedImage]):
        self._pictures: dict[ExemplarKind, list[EncodedImage]] = {"top": top, "random": chance}

    def read(self, unit: Unit) -> UnitExemplars:
        kept = tuple(
            Exemplar(kind=kind, rank=rank, activation=0.0, image=image, box=whole(image.pixels), map=None)
            for kind, pictures in self._pictures.items()
            for rank, image in enumerate(pictures)
        )
        return UnitExemplars(unit=unit, threshold=0.5, maxima=np.zeros(101), mean=0.0, std=1.0, exemplars=kept)


class Counting(ClosedFormTarget):
    """The real units, which count their probes."""

    def __init__(self) -> None:
        super().__init__("t")
        self.probes = 0

    def probe(self, probes: Sequence[Probe]) -> list[UnitActivation]:
        self.probes += len(probes)
        return super().probe(probes)

    def info(self) -> TargetInfo:
        return super().info()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (60, 60)).save(folder / "only.png")
    return ImageDataset.open(Path(folder))


@pytest.fixture
def target() -> Counting:
    return Counting()


@pytest.fixture
def means(library: ImageDataset, target: Counting) -> Means:
    red, blue = [plain(200 + n, 20, 20) for n in range(6)], [plain(20, 20, 200 + n) for n in range(6)]
    services = Services(
        target=target,
        exemplars=Shelf(red, blue),
        generator=CollageGenerator(library, 224),
        editor=CollageEditor(library),
        backbone=None,  # pyright: ignore[reportArgumentType]
    )
    return Means(services=services, see=see, pictures=picture_order([*red, *blue], 0))


def test_exemplars_alone_give_the_word_that_sets_the_top_ones_apart(means: Means, target: Counting):
    assert exemplars_only(RED, means, 100) == Labelled(labels=("red",))
    assert target.probes == 0


def test_dissection_gives_the_word_that_goes_with_the_activations(means: Means):
    assert dissected(RED, means, 12) == Labelled(labels=("red",), images=12)


def test_cosine_cubed_agrees_with_a_case_computed_by_hand():
    activations = np.array([0.0, 1.0, 2.0])
    evidence = np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0], [2.0, 0.0, 1.0]])
    assert np.allclose(cosine_cubed(activations, evidence), [1.0, -1.0, 0.0])
    skewed = cosine_cubed(np.array([0.0, 0.0, 3.0]), np.array([[0.0], [3.0], [3.0]]))
    # Centred: (-1, -1, 2) and (-2, 1, 1), up to scale; cubed: (-1, -1, 8) and (-8, 1, 1).
    assert np.allclose(skewed, [(8 - 1 + 8) / (np.sqrt(66) * np.sqrt(66))])


@pytest.mark.parametrize("budget", [0, 1, 50, 300])
def test_no_baseline_shows_more_images_than_its_budget(budget: int, means: Means, target: Counting):
    for baseline in (exemplars_only, dissected, exhaustive, random_words):
        target.probes = 0
        found = baseline(RED, means, budget)
        assert target.probes == found.images <= budget, baseline


def test_exhaustive_search_tries_every_word_and_every_pair_before_it_repeats():
    names = [name for name, _ in searches(len(hypotheses()))]
    assert len(set(names)) == len(names)
    assert {word.name for word in WORDS} <= set(names)
    assert "red circle" in names


@pytest.mark.parametrize(
    ("unit", "truth"), [(HORIZONTAL, {"horizontal stripes"}), (RED_CIRCLE, {"red circle"})], ids=["mono", "and"]
)
def test_exhaustive_search_names_a_truth_that_it_drew(unit: Unit, truth: set[str], means: Means):
    named = exhaustive(unit, means, 2 * len(hypotheses())).labels
    assert {label for label in named if all(word in label for word in next(iter(truth)).split())}


def test_exhaustive_search_abstains_where_nothing_stands_out():
    searched = searches(100)
    assert chosen(searched, [1.0] * 100, 0.8) == ()
    random = np.random.default_rng(0).normal(0, 1, 100)
    assert chosen(searched, random.tolist(), 0.8) == ()


def test_two_hypotheses_of_about_one_height_are_both_named():
    searched = searches(40)
    values = np.random.default_rng(0).normal(0, 0.01, 40)
    values[[3, 7]] = 1.0, 0.9
    assert chosen(searched, values.tolist(), 0.8) == (searched[3][0], searched[7][0])


def test_random_words_differ_between_units_and_not_between_runs(means: Means):
    units = [Unit(target="t", layer="l", index=index) for index in range(200)]
    drawn = [random_words(unit, means, 0).labels for unit in units]
    assert drawn == [random_words(unit, means, 0).labels for unit in units]
    assert len(set(drawn)) > 40
