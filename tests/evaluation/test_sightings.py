"""Labels are looked for in top exemplars and in photographs, by what is known of them; on drawn scenes and a small network."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.assembly import evaluation, exemplars
from openmaia.cli.terminal.scores import show_beside
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import share_difference, wilson
from openmaia.evaluation.analysis.verdict import ExemplarCount, judge
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.protocol import evaluate_claims
from openmaia.evaluation.scores import score
from openmaia.evaluation.services import EvaluationServices
from openmaia.evaluation.sightings import TOP
from openmaia.evaluation.storage import read_trial, to_parquet
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.truth import holds
from tests.conftest import REPOSITORY
from tests.reporting.making import run

UNIT = Unit(target="net", layer="0", index=0)
CLAIM = Claim(unit=UNIT, labels=("red",))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("scenes")
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            *("target.kind=network", "target.name=net", "target.network=tests.helpers.networks:mortal"),
            *("target.layers=[0]", "pictures.kind=scenes", "pictures.count=120", "pictures.size=64"),
            *("generator.kind=scenes", "editor.kind=scenes", "evaluate.judge.kind=none", "evaluate.n=4"),
            *("evaluate.looks=[]", "evaluate.random=20", "evaluate.pictures=60"),
            *(f"paths.exemplars={folder / 'exemplars'}", f"paths.cache={folder / 'cache'}"),
        ]
    )


@pytest.fixture(scope="module")
def services(config: Config) -> EvaluationServices:
    exemplars.make(config, ["0"])
    return evaluation.in_process(config)


def top(services: EvaluationServices) -> Sequence[EncodedImage]:
    assert services.exemplars is not None
    return [each.image for each in services.exemplars.read(UNIT).of_kind("top")][:TOP]


def test_scene_graphs_say_which_exemplars_and_photographs_show_a_label(config: Config, services: EvaluationServices):
    (tested,) = evaluate_claims([CLAIM], services, evaluation.design(config))
    seen = tested.trial.sightings
    assert seen is not None and seen.by == ("scene graphs",)
    assert list(seen.exemplars) == [holds(Scene.loads(each.recipe), "red") for each in top(services)]
    assert {True, False} <= {*seen.exemplars}
    shown, known = seen.photographs
    random = [tested.trial.stimuli[row] for row in tested.trial.rows("random")]
    assert {(each.shows, each.verified_by) for each in random} == {(True, "scene graphs")}
    assert known - shown == len(random) == 20 and shown > 0, "those that show the label are replaced"
    recipes = {each.digest: each.recipe for each in services.photographs}
    assert not any(holds(Scene.loads(recipes[each.digest]), "red") for each in random)
    assert read_trial(to_parquet(tested)).sightings == seen
    scores = score(tested)
    assert scores["in_exemplars"] == pytest.approx(sum(seen.known) / TOP)
    assert scores["in_photographs"] == pytest.approx(shown / known, rel=1e-4)
    counted = judge("answer", scores | {"p": 0.01, "q": 0.01}).shown
    assert counted is not None and counted.text == f"{sum(seen.known)} of 10; base {shown / known:.2f}"


def test_what_nothing_tells_is_not_known(config: Config, services: EvaluationServices):
    """No scene graph knows the word, no caption is given, and there is no judge."""
    unknown = replace(services, captions={})
    (tested,) = evaluate_claims([Claim(unit=UNIT, labels=("zebra-like things",))], unknown, evaluation.design(config))
    assert tested.trial.sightings is not None and set(tested.trial.sightings.exemplars) == {None}
    assert score(tested)["in_exemplars"] is None and judge("answer", score(tested)).shown is None


class Bright:
    """Sees a label in bright images."""

    name = "brightness"

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        return [(bool(image.pixels.mean() > 128),) * len(labels) for image in images]


def test_captions_and_then_the_judge_are_asked_about_other_pictures(config: Config, services: EvaluationServices):
    first, *rest = top(services)
    captions = {first.sources[0]: "a red boat"}
    other = replace(services, pictures_judge=None, captions=captions, judge=Bright())
    (tested,) = evaluate_claims([CLAIM], other, evaluation.design(config))
    seen = tested.trial.sightings
    assert seen is not None and seen.by == ("brightness", "captions")
    assert seen.exemplars == (True, *(bool(each.pixels.mean() > 128) for each in rest))


class Without:
    """A store whose units have no exemplars that are top ones."""

    def read(self, unit: Unit) -> UnitExemplars:
        return UnitExemplars(unit=unit, threshold=0.0, exemplars=())


def test_unit_without_exemplars_has_no_count(config: Config, services: EvaluationServices):
    for exemplars_of in (None, Without()):
        (tested,) = evaluate_claims([CLAIM], replace(services, exemplars=exemplars_of), evaluation.design(config))
        assert score(tested)["in_exemplars"] is None


@pytest.mark.parametrize(
    ("exemplars", "photographs", "is_shown"),
    [
        ((8, 10), (6, 100), True),
        ((4, 10), (0, 100), False),  # fewer than half
        ((6, 10), (60, 100), False),  # as often as anywhere
        ((8, 10), (0, 0), True),  # no base
    ],
)
def test_label_is_shown_by_half_of_the_exemplars_and_more_than_by_photographs(
    exemplars: tuple[int, int], photographs: tuple[int, int], is_shown: bool
):
    assert ExemplarCount(exemplars=exemplars, photographs=photographs).is_shown is is_shown


def test_runs_of_other_units_stand_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = [(run(tmp_path / name, name=name), name) for name in ("trained", "untrained")]
    show_beside(made, 50)
    text = " ".join(capsys.readouterr().out.split())
    assert "trained 5 0 (0 % to 43 %) 0 (0 % to 43 %)" in text
    assert "trained minus untrained: supported +0 % (-43 % to +43 %), and shown by exemplars +0 %" in text


def test_difference_of_shares_is_that_of_newcombe():
    """The first example of Newcombe 1998: 56 of 70 and 48 of 80."""
    shares = [(hits / n, *wilson(hits / n, n)) for hits, n in ((56, 70), (48, 80))]
    assert share_difference(shares[0], shares[1]) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
