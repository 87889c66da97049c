"""Which images are controls of a description, and tests that look several times; on units whose truth is known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from openmaia.core.images import EncodedImage
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.sequential import ERROR, levels
from openmaia.evaluation.analysis.significance import compute_significance
from openmaia.evaluation.claims import Claim, Sharing
from openmaia.evaluation.compared import Partners, unlike
from openmaia.evaluation.controls import picture_captions, prepare_reference
from openmaia.evaluation.prompts import ModelPromptWriter
from openmaia.evaluation.protocol import evaluate_claims, run_trials
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.trials import LayerScale, Stimulus, Trial
from tests.evaluation.scripted_model import ScriptedModel, model
from tests.helpers.samples import noise
from tests.prepare import packages

RED, GREEN, BLUE = (Unit(target="t", layer="mono", index=index) for index in range(3))


def claim(unit: Unit, *labels: str) -> Claim:
    return Claim(unit=unit, labels=labels)


# -- photographs ---------------------------------------------------------------------------------------------------------


def photograph(number: int) -> EncodedImage:
    return EncodedImage.of(noise(number).decoded(), [f"source-{number}"])


def number(sources: Sequence[str]) -> int:
    return int(sources[0].removeprefix("source-"))


class EvenJudge:
    """Sees every label in the photographs with an even seed, and does not know those whose seed ends in 5."""

    name = "even"

    def __init__(self) -> None:
        self.seen: list[EncodedImage] = []

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        self.seen += images
        numbers = [number(image.sources) for image in images]
        return [(None if number % 10 == 5 else number % 2 == 0,) * len(labels) for number in numbers]


def drawn(
    services: EvaluationServices, unit: Unit, captions: Mapping[str, str] = {}, random: int = 8, photographs: int = 20
) -> list[Stimulus]:
    """Returns the photographs that are controls of a description of a unit."""
    images = [photograph(number) for number in range(photographs)]
    services = replace(services, photographs=images, captions=captions)
    reference = prepare_reference({"mono"}, services, EvaluationDesign(n=2, random=random))
    stimuli, responses, _ = reference.controls(claim(unit, "red"), services)
    assert [each.activation for each in stimuli] == [response[unit.index] for response in responses]
    return [each for each in stimuli if each.role == "random"]


def numbers(stimuli: Sequence[Stimulus]) -> set[int]:
    return {number(each.sources) for each in stimuli}


def test_photographs_differ_between_units_and_not_between_calls(services: EvaluationServices):
    red, again, green = (drawn(services, unit) for unit in (RED, RED, GREEN))
    assert red == again
    assert len(numbers(red)) == len(numbers(green)) == 8
    assert numbers(red) != numbers(green)
    assert {(each.shows, each.verified_by) for each in red} == {(None, "")}, "nobody says what they show"


def test_captions_say_which_photographs_show_a_label(services: EvaluationServices):
    captions = {f"source-{number}": "a red circle" if number < 12 else "a blue square" for number in range(19)}
    found = drawn(services, RED, captions)
    assert numbers(found) == set(range(12, 20))
    known = {(each.shows, each.verified_by) for each in found if numbers([each]) != {19}}
    assert known == {(True, "captions")}, "they are as requested: they do not show the label"
    assert [(each.shows, each.verified_by) for each in found if numbers([each]) == {19}] == [(None, "")]


def test_judge_says_it_of_photographs_without_a_caption(services: EvaluationServices):
    judge, captions = EvenJudge(), {f"source-{number}": "a blue square" for number in range(10)}
    found = drawn(replace(services, judge=judge), RED, captions, random=20)
    assert numbers(found) == {*range(10), *range(11, 20, 2)}
    assert numbers([each for each in found if each.verified_by == "captions"]) == set(range(10))
    assert numbers([each for each in found if each.shows is None]) == {15}
    assert len(judge.seen) == 10


def test_pictures_have_the_captions_of_their_dataset():
    library = ImageDataset.open(packages())
    captions = picture_captions(library)
    assert captions
    assert captions.keys() <= {item.digest for item in library.items}
    assert all(text == text.strip() and text for text in captions.values())


# -- descriptions that are alike -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sharing", "left"), [("label", ["blue"]), ("labels", ["Red, green", "blue"])])
def test_descriptions_that_are_alike_are_no_controls(sharing: Sharing, left: list[str]):
    own = claim(RED, "red", "circle")
    others = {"Red, green": claim(GREEN, "Red!", "green"), "blue": claim(BLUE, "blue")}
    same = claim(Unit(target="t", layer="mono", index=3), "CIRCLE", "red")
    assert Partners([own, *others.values(), same], sharing).nearest(own) == [others[name] for name in left]
    words = [Trial(claim=each, outcome="tested") for each in (*others.values(), same)]
    assert [each.claim for each in unlike(own, words, sharing)] == [others[name] for name in left]


def described(unit: Unit, *labels: str) -> Trial:
    """A test in which four units respond at random."""
    stimuli = [
        Stimulus(role=role, digest=f"{role}{n}", activation=0.0) for role in ("positive", "neutral") for n in (0, 1)
    ]
    matrix = np.random.default_rng(unit.index + 1).normal(size=(4, 4)).astype(np.float16)
    return Trial(claim=claim(unit, *labels), outcome="tested", stimuli=tuple(stimuli), matrix=matrix)


@pytest.mark.parametrize(("sharing", "null"), [("label", 4 * 3 - 2 + 3), ("labels", 4 * 3 + 4)])
def test_descriptions_that_are_alike_are_not_in_the_null_distribution(sharing: Sharing, null: int):
    """Of four units two share a label, and the random word is the label of a third."""
    labels = [("red", "circle"), ("red", "square"), ("blue", "star"), ("green",)]
    trials = [described(Unit(target="t", layer="mono", index=n), *each) for n, each in enumerate(labels)]
    words = [described(Unit(target="t", layer="mono", index=-1), "star")]
    by_claim = {each.claim: each for each in trials}
    found = compute_significance(trials, by_claim.__getitem__, lambda _: words, sharing=sharing)
    assert set(found.null.values()) == {null}


# -- looks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("design", "sizes"),
    [
        (EvaluationDesign(n=10, looks=(20, 40)), (10, 20, 40)),
        (EvaluationDesign(n=10), (10,)),
        (EvaluationDesign(n=30, looks=(20, 30, 40)), (30, 40)),
        (EvaluationDesign(n=60, looks=(20, 40)), (60,)),
        (EvaluationDesign(n=10, looks=(20, 40), preset="repo"), (10,)),
        (EvaluationDesign(n=10, looks=(20, 40), preset="pairing"), (7,)),
    ],
)
def test_looks_are_above_n_and_only_in_our_own_preset(design: EvaluationDesign, sizes: tuple[int, ...]):
    assert design.sizes == sizes


def test_test_without_looks_has_a_fixed_size_and_intervals_of_95_percent(services: EvaluationServices):
    trial = evaluate_claims([claim(GREEN, "red")], services, EvaluationDesign(n=3, looks=()))[0].trial
    assert (trial.looks, trial.miss) == ((3,), pytest.approx(ERROR))
    assert len(trial.rows("positive")) == len(trial.rows("neutral")) == 3


BACKGROUNDS = ("white", "grey", "black", "blue", "green", "yellow", "orange", "purple")


def written_by_a_model(question: str, _: int) -> str:
    """Writes pairs in contexts that it was not told to avoid."""
    if "pairs" not in question:
        return "none"
    count = int(question.split("exactly ")[1].split()[0])
    left = [ground for ground in BACKGROUNDS if f"- a red circle on a {ground} background" not in question]
    rows = [f"a red circle on a {ground} background | a {ground} background" for ground in left[:count]]
    return "\n".join(f"{number}. {row}" for number, row in enumerate(rows, start=1))


def test_model_writes_other_prompts_for_further_looks(services: EvaluationServices):
    """The first look has too few images to decide."""
    written = replace(
        services,
        writer=ModelPromptWriter(model(ScriptedModel(written_by_a_model))),
        scales={"mono": LayerScale(mean=np.zeros(6), std=np.ones(6), top=np.ones(6))},
    )
    design = EvaluationDesign(n=2, looks=(5, 8), random=0)
    reference = prepare_reference({"mono"}, replace(written, writer=services.writer), design)
    (trial,) = run_trials([claim(RED, "red circle")], written, design, reference)
    positive = [trial.stimuli[row].prompt for row in trial.rows("positive")]
    assert len(trial.looks) > 1
    assert trial.looks == design.sizes[: len(trial.looks)]
    assert trial.miss == levels(design.sizes)[len(trial.looks) - 1]
    assert positive == [f"a red circle on a {ground} background" for ground in BACKGROUNDS[: trial.looks[-1]]]
    assert trial.cause == ""
