"""The predictive protocol: scores by hand, matched prompts, and controls from another unit."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from openmaia.config import load
from openmaia.evaluate.predictive import Claim, Evaluation, is_drawn, partner, score, stimuli, to_parquet
from openmaia.evaluate.prompts import write
from openmaia.evaluate.run import differences, evaluate
from openmaia.evaluate.statistics import auc, mean_interval
from openmaia.generators.collage import CollageGenerator
from openmaia.generators.collage.scene import Scene
from openmaia.pictures.library import Library
from openmaia.pictures.vocabulary import WORDS, Kind, find, of_kind
from openmaia.services import Drawn, Generation, Probe
from openmaia.store.records import Stop
from openmaia.store.run import Owed, Run
from openmaia.targets.closed_form import ClosedFormTarget
from openmaia.tools.seeds import seed
from openmaia.units import Unit
from tests.samples import record

RED, GREEN, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 3))


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> CollageGenerator:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return CollageGenerator(Library.open(folder), 224)


def claim(unit: Unit, *labels: str, replicate: int = 0) -> Claim:
    return Claim(unit=unit, replicate=replicate, labels=labels)


class Recorder:
    """A generator that keeps what it was asked for."""

    def __init__(self, generator: CollageGenerator):
        self._generator, self.requests = generator, list[Generation]()

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        self.requests += requests
        return self._generator.generate(requests)


# -- statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positive", "neutral", "expected"),
    [
        ([3, 4], [1, 2], 1.0),
        ([1, 2], [3, 4], 0.0),
        ([1, 1], [1, 1], 0.5),
        ([2, 4], [1, 3], 0.75),
        ([1, 2, 2], [2], 1 / 3),
        ([], [1], 0.5),
        ([1], [], 0.5),
    ],
)
def test_auc_by_hand(positive: list[float], neutral: list[float], expected: float):
    assert auc(positive, neutral) == pytest.approx(expected)


def test_auc_is_the_share_of_pairs_won_ties_counting_half():
    random = np.random.default_rng(0)
    for _ in range(20):
        positive, neutral = (random.integers(0, 6, random.integers(1, 9)).astype(float) for _ in range(2))
        wins = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in neutral])
        assert auc(positive.tolist(), neutral.tolist()) == pytest.approx(wins)


def test_an_interval_is_the_same_every_time():
    values = [0.1, 0.5, -0.2, 0.3]
    assert mean_interval(values, 500) == mean_interval(values, 500)


def test_an_interval_is_about_the_normal_one_for_many_values():
    values = np.random.default_rng(0).normal(0.3, 1, 400)
    found = mean_interval(values.tolist(), 2000)
    half = 1.96 * values.std() / 20
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.02)
    assert found.high == pytest.approx(values.mean() + half, abs=0.02)


@pytest.mark.parametrize("values", [[0.3], [0.3, 0.3, 0.3]])
def test_the_interval_of_one_value_is_that_value(values: list[float]):
    found = mean_interval(values, 500)
    assert (found.mean, found.low, found.high) == pytest.approx((0.3, 0.3, 0.3))


def test_the_interval_of_nothing_is_no_number():
    assert np.isnan(mean_interval([], 500).mean)


# -- prompts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_the_positive_prompt_has_the_word_and_the_neutral_one_has_not(word: str):
    for pair in write([word], 10):
        assert word in [found.name for found in find(pair.positive)]
        assert word not in [found.name for found in find(pair.neutral)]


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_a_pair_differs_in_nothing_but_the_words_of_the_label(word: str):
    for pair in write([word], 10):
        kinds = [[found.kind for found in find(prompt)] for prompt in (pair.positive, pair.neutral)]
        assert kinds[0] == kinds[1]


def test_labels_take_turns():
    assert [pair.label for pair in write(["dog", "red", "grass"], 5)] == ["dog", "red", "grass", "dog", "red"]


def test_a_neutral_prompt_has_no_word_of_any_label():
    labels = [word.name for word in of_kind(Kind.COLOUR)][:5]
    for pair in write(labels, 20):
        assert not {found.name for found in find(pair.neutral)} & set(labels)


@pytest.mark.parametrize(
    "label", ["red circle", "blue horizontal stripes", "dog next to a cup", "dog on grass", "zyzzyva", "’☃", "x" * 500]
)
def test_any_label_gets_as_many_pairs_as_asked(label: str):
    pairs = write([label], 7)
    assert len(pairs) == 7
    assert all(pair.positive != pair.neutral for pair in pairs)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_description_that_names_every_word_of_a_kind_can_still_be_written(kind: Kind):
    assert len(write([word.name for word in of_kind(kind)], 40)) == 40


# -- images --------------------------------------------------------------------------------------------------------------


def test_evaluation_draws_from_the_test_half_only(generator: CollageGenerator):
    asked = Recorder(generator)
    stimuli(claim(RED, "red"), asked, 6, 0)
    assert {request.half for request in asked.requests} == {"test"}


def test_evaluation_never_gets_the_agents_own_image(generator: CollageGenerator):
    asked = Recorder(generator)
    stimuli(claim(RED, "red"), asked, 6, 0)
    for request in asked.requests:
        assert request.seed not in [seed(0, "explore", request.prompt, nth) for nth in range(50)]


def test_the_images_of_a_pair_have_one_seed_and_pairs_have_different_ones(generator: CollageGenerator):
    asked = Recorder(generator)
    stimuli(claim(RED, "red"), asked, 6, 0)
    positive, neutral = asked.requests[:6], asked.requests[6:]
    assert [request.seed for request in positive] == [request.seed for request in neutral]
    assert len({request.seed for request in positive}) == 6


@pytest.mark.parametrize("label", ["red", "circle", "grass", "horizontal stripes", "red circle"])
def test_neutral_images_match_in_number_size_place_and_kind_of_ground(generator: CollageGenerator, label: str):
    made = stimuli(claim(RED, label), generator, 10, 0)
    for one, other in zip(made[:10], made[10:], strict=True):
        a, b = (Scene.loads(stimulus.picture.recipe) for stimulus in (one, other))
        assert len(a.figures) == len(b.figures)
        assert [(f.size, f.place) for f in a.figures] == [(f.size, f.place) for f in b.figures]
        assert [w.kind for w in find(a.ground)] == [w.kind for w in find(b.ground)]


def test_an_abstention_needs_no_images(generator: CollageGenerator):
    assert stimuli(claim(RED), generator, 6, 0) == ()


def test_a_description_that_could_not_be_drawn_is_not_drawn(generator: CollageGenerator):
    assert is_drawn(stimuli(claim(RED, "red"), generator, 4, 0))
    assert not is_drawn(stimuli(claim(RED, "zyzzyva"), generator, 4, 0))


# -- scores --------------------------------------------------------------------------------------------------------------


def scored(generator: CollageGenerator, own: Claim, other: Claim | None) -> Evaluation:
    made = stimuli(own, generator, 6, 0)
    control = (other.unit, stimuli(other, generator, 6, 0)) if other else None
    return score(own, made, control, ClosedFormTarget("t"))


def test_a_true_description_wins_on_its_own_images_and_not_on_anothers(generator: CollageGenerator):
    found = scored(generator, claim(RED, "red"), claim(STRIPES, "horizontal stripes")).scores
    assert found["outcome"] == "tested"
    assert found["auc"] == 1.0
    assert found["auc_other"] < 0.8
    assert found["other"] == 3
    assert found["positive"] > 0.9 > 0.1 > found["neutral"]


def test_a_false_description_is_found_out(generator: CollageGenerator):
    assert scored(generator, claim(RED, "horizontal stripes"), None).scores["auc"] < 0.8


def test_activations_are_those_of_the_images(generator: CollageGenerator):
    found = scored(generator, claim(RED, "red"), claim(GREEN, "green"))
    target = ClosedFormTarget("t")
    again = target.probe([Probe(unit=RED, picture=stimulus.picture) for stimulus in found.stimuli])
    assert found.activations == tuple(answer.value for answer in again)
    others = stimuli(claim(GREEN, "green"), generator, 6, 0)
    again = target.probe([Probe(unit=RED, picture=stimulus.picture) for stimulus in others])
    assert found.other_activations == tuple(answer.value for answer in again)


@pytest.mark.parametrize(("labels", "outcome"), [((), "abstained"), (("zyzzyva",), "undrawable")])
def test_what_says_or_shows_nothing_scores_what_chance_scores(
    generator: CollageGenerator, labels: tuple[str, ...], outcome: str
):
    found = scored(generator, claim(RED, *labels), claim(GREEN, "green")).scores
    assert (found["outcome"], found["auc"]) == (outcome, 0.5)


def test_without_another_unit_there_is_no_control(generator: CollageGenerator):
    found = scored(generator, claim(RED, "red"), None).scores
    assert (found["auc_other"], found["other"]) == (None, None)


@pytest.mark.parametrize(("index", "expected"), [(2, 5), (5, 9), (9, 2), (3, 5), (10, 2)])
def test_the_partner_is_the_next_unit_of_the_layer_starting_over(index: int, expected: int):
    drawn = [replace(RED, index=i) for i in (9, 2, 5)] + [Unit(target="t", layer="or", index=3)]
    assert partner(replace(RED, index=index), drawn) == replace(RED, index=expected)


def test_a_unit_alone_in_its_layer_has_no_partner():
    assert partner(RED, [RED, Unit(target="t", layer="or", index=0)]) is None


def test_an_evaluation_is_kept_whole(generator: CollageGenerator):
    found = scored(generator, claim(RED, "red"), claim(GREEN, "green"))
    table = pq.read_table(io.BytesIO(to_parquet(found))).to_pylist()
    assert len(table) == 24
    assert [row["role"] for row in table[::6]] == ["positive", "neutral", "other positive", "other neutral"]
    assert [row["activation"] for row in table] == [*found.activations, *found.other_activations]
    assert [row["digest"] for row in table[:12]] == [stimulus.picture.digest for stimulus in found.stimuli]


# -- a whole run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(load(["name=demo", "units=all", "target.name=t", f"paths.runs={tmp_path}"]))
    made.set_plan([RED, GREEN, STRIPES], 1)
    for unit, labels in ((RED, ("red",)), (GREEN, ("green",)), (STRIPES, ())):
        made.publish(record(unit, labels=labels, turns=(), stop=Stop.ANSWER if labels else Stop.ABSTAIN))
    return made


def test_every_record_gets_an_evaluation_once(run: Run, generator: CollageGenerator):
    told: list[tuple[int, int]] = []
    for _ in range(2):
        evaluate(
            run, generator, ClosedFormTarget("t"), n=4, seed=0, progress=lambda done, total: told.append((done, total))
        )
    assert told == [(1, 3), (2, 3), (3, 3)]
    scores = {owed.unit: values for owed, values in run.scores().items()}
    assert [scores[unit]["outcome"] for unit in (RED, GREEN, STRIPES)] == ["tested", "tested", "abstained"]
    assert (scores[RED]["other"], scores[GREEN]["other"], scores[STRIPES]["other"]) == (1, 0, 0)


def test_the_mean_difference_counts_abstentions_too(run: Run, generator: CollageGenerator):
    evaluate(run, generator, ClosedFormTarget("t"), n=4, seed=0)
    scores = list(run.scores().values())
    expected = np.mean([values["auc"] - values["auc_other"] for values in scores])
    assert len(scores) == 3
    assert differences(run, 200).mean == pytest.approx(expected)


def test_an_evaluation_does_not_depend_on_what_else_was_evaluated(
    run: Run, generator: CollageGenerator, tmp_path: Path
):
    evaluate(run, generator, ClosedFormTarget("t"), n=4, seed=0)
    before = run.scores()
    run.files.delete("evaluation/t/mono/0-0.parquet")
    evaluate(run, generator, ClosedFormTarget("t"), n=4, seed=0)
    assert run.scores()[Owed(unit=RED, replicate=0)] == before[Owed(unit=RED, replicate=0)]


@pytest.mark.parametrize("word", [word.name for word in of_kind(Kind.COLOUR, Kind.SHAPE, Kind.OBJECT)])
def test_a_pair_shares_its_ground(word: str):
    for pair in write([word], 10):
        grounds = [prompt.partition(" on ")[2] for prompt in (pair.positive, pair.neutral)]
        assert grounds[0] == grounds[1]


@pytest.mark.parametrize("labels", [["dog", "grass"], ["white", "apple"], ["circle", "grey"], ["cup", "sand", "water"]])
def test_grounds_and_carriers_hold_no_other_label(labels: list[str]):
    for pair in write(labels, 20):
        assert not {word.name for word in find(pair.neutral)} & set(labels)
        assert {word.name for word in find(pair.positive)} & set(labels) == {pair.label}


def test_a_thing_in_its_scene_is_asked_for_in_its_scene():
    (pair,) = write(["a dog on grass"], 1)
    assert pair.positive == "a dog on grass"
    assert " on " in pair.neutral
