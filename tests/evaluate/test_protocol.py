"""The predictive protocol: images, controls, verified stimuli, identification; on units whose truth is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.errors import UsageError
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.protocol import Controls, Design, Instruments, evaluate_claims
from openmaia.evaluate.scores import Evaluation, identification, partners
from openmaia.evaluate.stored import read_trial, to_parquet
from openmaia.evaluate.trials import Stimulus, Trial, made, standardised
from openmaia.evaluate.writers import PublishedWriter, RuleWriter
from openmaia.generators.collage import CollageGenerator
from openmaia.generators.collage.scene import Scene
from openmaia.pictures.library import Library
from openmaia.pictures.vocabulary import find
from openmaia.services import Drawn, Generation, LayerProbe, Probe
from openmaia.targets.closed_form import ClosedFormTarget
from openmaia.tools.seeds import seed
from openmaia.units import Unit
from tests.evaluate.talking import asker, in_turn
from tests.samples import noise

RED, GREEN, BLUE, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 2, 3))
RED_OR_STRIPES = Unit(target="t", layer="or", index=0)
TARGET = ClosedFormTarget("t")


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> CollageGenerator:
    folder = tmp_path_factory.mktemp("one")
    Image.new("RGB", (40, 40)).save(folder / "only.png")
    return CollageGenerator(Library.open(folder), 224)


@pytest.fixture(scope="module")
def instruments(generator: CollageGenerator) -> Instruments:
    return Instruments(generator=generator, target=TARGET, writer=RuleWriter())


def claim(unit: Unit, *labels: str, replicate: int = 0) -> Claim:
    return Claim(unit=unit, replicate=replicate, labels=labels)


class Recorder:
    """A generator that keeps what it was asked for."""

    def __init__(self, generator: CollageGenerator):
        self._generator, self.requests = generator, list[Generation]()

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        self.requests += requests
        return self._generator.generate(requests)


def asked(generator: CollageGenerator, *labels: str, n: int = 3) -> list[Generation]:
    recorder = Recorder(generator)
    made(claim(RED, *labels), RuleWriter().write(claim(RED, *labels), n, 0), recorder, TARGET, None)
    return recorder.requests


def scored(instruments: Instruments, *claims: Claim, n: int = 6) -> list[dict[str, object]]:
    return [found.scores for found in evaluate_claims(claims, instruments, Design(n=n))]


# -- images --------------------------------------------------------------------------------------------------------------


def test_evaluation_draws_from_the_test_half_only(generator: CollageGenerator):
    assert {request.half for request in asked(generator, "red")} == {"test"}


def test_evaluation_never_gets_the_agents_own_image(generator: CollageGenerator):
    for request in asked(generator, "red"):
        assert request.seed not in [seed(0, "explore", request.prompt, nth) for nth in range(50)]


def test_the_images_of_a_pair_have_one_seed_and_pairs_have_different_ones(generator: CollageGenerator):
    shots = RuleWriter().write(claim(RED, "red"), 30, 0)
    assert [shot.seed for shot in shots[:30]] == [shot.seed for shot in shots[30:]]
    assert len({shot.seed for shot in shots}) == 30
    assert [request.seed for request in asked(generator, "red", n=2)] == [
        shot.seed for shot in RuleWriter().write(claim(RED, "red"), 2, 0)
    ]


def test_claims_that_say_the_same_get_the_same_images():
    one, other = ([shot.seed for shot in RuleWriter().write(claim(unit, "red"), 6, 0)] for unit in (RED, GREEN))
    assert one == other


@pytest.mark.parametrize("label", ["red", "circle", "grass", "horizontal stripes", "red circle"])
def test_neutral_images_match_in_number_size_place_and_kind_of_ground(generator: CollageGenerator, label: str):
    pictures = [one.picture for one in generator.generate(asked(generator, label, n=5))]
    for one, other in zip(pictures[:5], pictures[5:], strict=True):
        a, b = (Scene.loads(picture.recipe) for picture in (one, other))
        assert [(f.size, f.place) for f in a.figures] == [(f.size, f.place) for f in b.figures]
        assert [w.kind for w in find(a.ground)] == [w.kind for w in find(b.ground)]


# -- responses -----------------------------------------------------------------------------------------------------------


def test_every_unit_of_the_layer_answers_as_its_probe_does(generator: CollageGenerator):
    picture = generator.generate([Generation(prompt="a red circle on a grey background", seed=1)])[0].picture
    for layer, count in TARGET.info().layers.items():
        (found,) = TARGET.respond([LayerProbe(layer=layer, picture=picture)])
        units = [Unit(target="t", layer=layer, index=index) for index in range(count)]
        assert found.tolist() == [one.value for one in TARGET.probe([Probe(unit=u, picture=picture) for u in units])]


def test_activations_are_those_of_the_images(generator: CollageGenerator):
    shots = RuleWriter().write(claim(RED, "red"), 6, 0)
    stimuli, responses = made(claim(RED, "red"), shots, generator, TARGET, None)
    drawn = generator.generate([Generation(prompt=shot.prompt, seed=shot.seed, half="test") for shot in shots])
    again = TARGET.probe([Probe(unit=RED, picture=one.picture) for one in drawn])
    assert [stimulus.activation for stimulus in stimuli] == [answer.value for answer in again]
    assert responses[:, 0].tolist() == [answer.value for answer in again]


def stimulus(role: str, activation: float, **values: object) -> Stimulus:
    return Stimulus(role=role, digest=f"{role}{activation}", activation=activation, **values)  # pyright: ignore[reportArgumentType]


def test_deviations_are_those_of_the_exemplars():
    stimuli = [stimulus("positive", 5), stimulus("neutral", 1)]
    matrix, location, scale = standardised(
        np.array([[5.0, 2.0], [1.0, 2.0]]), stimuli, (np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    )
    assert matrix.tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert (location.tolist(), scale.tolist()) == ([1.0, 2.0], [2.0, 4.0])


def test_without_exemplars_deviations_are_from_the_images_that_should_leave_the_unit_quiet():
    stimuli = [stimulus("positive", 4), stimulus("neutral", 0), stimulus("random", 2)]
    matrix, location, _ = standardised(np.array([[4.0], [0.0], [2.0]]), stimuli, None)
    assert location.tolist() == [1.0]
    assert matrix[:, 0].argsort().tolist() == [1, 2, 0]


def test_a_constant_unit_deviates_by_nothing_and_what_is_not_finite_is_cut_off():
    stimuli = [stimulus("positive", 4), stimulus("neutral", 0)]
    matrix, _, _ = standardised(np.array([[3.0, 1e30], [3.0, 0.0]]), stimuli, (np.zeros(2), np.array([0.0, 1e-6])))
    assert matrix[:, 0].tolist() == [0.0, 0.0]
    assert np.isfinite(matrix).all()


# -- scores --------------------------------------------------------------------------------------------------------------


def test_a_true_description_wins_on_its_own_images_and_not_on_anothers(instruments: Instruments):
    found = scored(instruments, claim(RED, "red"), claim(STRIPES, "horizontal stripes"))[0]
    assert (found["outcome"], found["auc"]) == ("tested", 1.0)
    assert found["auc_other"] < 0.8  # pyright: ignore[reportOperatorIssue]
    assert found["others"] == [3]
    assert found["positive"] > 0.9 > 0.1 > found["neutral"]  # pyright: ignore[reportOperatorIssue]


def test_a_false_description_is_found_out(instruments: Instruments):
    found = scored(instruments, claim(RED, "horizontal stripes"))[0]
    assert found["auc"] < 0.8  # pyright: ignore[reportOperatorIssue]
    assert found["p"] > 0.01  # pyright: ignore[reportOperatorIssue]


def test_a_wrong_label_shows_beside_the_mean(instruments: Instruments):
    found = scored(instruments, claim(RED, "red", "vertical stripes"), n=12)[0]
    assert found["worst_label"] == "vertical stripes"
    assert found["auc_worst"] < found["auc"]  # pyright: ignore[reportOperatorIssue]
    assert found["auc_by_label"]["red"] == 1.0  # pyright: ignore[reportIndexIssue, reportGeneralTypeIssues]


@pytest.mark.parametrize(("labels", "outcome"), [((), "abstained"), (("zyzzyva",), "undrawable")])
def test_what_says_or_shows_nothing_scores_what_chance_scores(
    instruments: Instruments, labels: tuple[str, ...], outcome: str
):
    found = scored(instruments, claim(RED, *labels), claim(GREEN, "green"))[0]
    assert (found["outcome"], found["auc"]) == (outcome, 0.5)


def test_an_abstention_is_still_measured_on_the_images_of_others(instruments: Instruments):
    found = scored(instruments, claim(RED), claim(GREEN, "red"))
    assert found[0]["auc_other"] == 1.0


def test_without_another_unit_there_is_no_control(instruments: Instruments):
    found = scored(instruments, claim(RED, "red"))[0]
    assert (found["auc_other"], found["others"]) == (None, [])


def test_one_image_of_each_kind_can_be_scored(instruments: Instruments):
    found = scored(instruments, claim(RED, "red"), claim(GREEN, "green"), n=1)[0]
    assert (found["auc"], found["d"], found["n"]) == (1.0, None, [1, 1])


def test_a_constant_unit_scores_chance(instruments: Instruments):
    """No picture of these has a circle on even ground, so that the unit always answers 0."""
    circle = Unit(target="t", layer="mono", index=5)
    found = scored(instruments, claim(circle, "horizontal stripes"))[0]
    assert (found["auc"], found["d"], found["mad"], found["p"]) == (0.5, None, None, 1.0)


def test_a_label_that_is_no_text_is_refused_by_name():
    with pytest.raises(UsageError, match=r"t/mono/0, by agent: 7 is a int"):
        claim(RED, 7)  # pyright: ignore[reportArgumentType]


def test_a_writer_that_stays_silent_is_no_fault_of_the_description(instruments: Instruments):
    silent = replace(instruments, writer=PublishedWriter(asker(in_turn("no")), "repo"))
    found = evaluate_claims([claim(RED, "red")], silent, Design(preset="repo", n=6))[0].scores
    assert (found["outcome"], found["auc"]) == ("unwritten", None)
    assert "asked 3 times" in found["cause"]


# -- controls ------------------------------------------------------------------------------------------------------------


def test_unrelated_images_are_the_same_for_all_units_and_name_nothing_of_the_claim(instruments: Instruments):
    found = evaluate_claims([claim(RED, "red"), claim(GREEN, "green")], instruments, Design(n=12))
    digests = [{s.digest for s in one.trial.stimuli if s.role == "unrelated"} for one in found]
    assert len(digests[0] & digests[1]) >= 6
    for one, word in zip(found, ("red", "green"), strict=True):
        prompts = [s.prompt for s in one.trial.stimuli if s.role == "unrelated"]
        assert prompts
        assert not any(word in [w.name for w in find(prompt)] for prompt in prompts)


def test_random_pictures_and_unrelated_images_have_scores_of_their_own(instruments: Instruments):
    with_pictures = replace(instruments, pictures=[noise(at) for at in range(4)])
    found = scored(with_pictures, claim(RED, "red"))[0]
    assert found["auc_random"] > 0.8  # pyright: ignore[reportOperatorIssue]
    assert found["auc_unrelated"] > 0.8  # pyright: ignore[reportOperatorIssue]


def test_controls_are_measured_once_for_all_layers(instruments: Instruments):
    controls = Controls.made({"mono", "or"}, replace(instruments, pictures=[noise(1), noise(2)]), Design(n=2))
    assert controls.pool["mono"].shape == (2, 6)
    for at, picture in enumerate((noise(1), noise(2))):
        (expected,) = TARGET.respond([LayerProbe(layer="or", picture=picture)])
        assert controls.pool["or"][at].tolist() == expected.tolist()


# -- verified stimuli ----------------------------------------------------------------------------------------------------


def test_a_collage_vouches_for_its_images(instruments: Instruments):
    found = evaluate_claims([claim(RED, "red")], instruments, Design(n=2))[0].trial
    assert {(s.shows, s.verified_by) for s in found.stimuli if s.role == "positive"} == {(True, "collage")}


def test_images_that_failed_are_left_out_of_the_scores(instruments: Instruments):
    """Two labels, one of which cannot be drawn: the unit is not silent, the generator failed."""
    found = scored(instruments, claim(RED, "red", "red", "zyzzyva"), n=9)[0]
    assert (found["outcome"], found["failed_images"], found["shown"]) == ("tested", 3, pytest.approx(2 / 3))
    assert (found["auc"], found["n"]) == (1.0, [6, 6])


class Unvouched(Recorder):
    """A generator that does not know what it has drawn, as diffusion models do not."""

    def generate(self, requests: Sequence[Generation]) -> list[Drawn]:
        return [Drawn(picture=one.picture) for one in super().generate(requests)]


class Blind:
    """A judge who sees red and nothing else, and does not know about the first picture that it is shown."""

    name = "redness"

    def __init__(self) -> None:
        self._shown = 0

    def judge(self, pictures: Sequence[object], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        self._shown += 1
        (answer,) = TARGET.probe([Probe(unit=RED, picture=pictures[0])])  # pyright: ignore[reportArgumentType]
        return [(None if self._shown == 1 else answer.value > 0.5,)]


def test_where_nobody_vouches_a_judge_looks(instruments: Instruments, generator: CollageGenerator):
    looked = replace(instruments, generator=Unvouched(generator), judge=Blind())
    found = evaluate_claims([claim(RED, "red")], looked, Design(n=4))[0].trial
    verdicts = [(s.shows, s.verified_by) for s in found.stimuli if s.role in ("positive", "neutral")]
    assert verdicts == [(None, "redness")] + [(True, "redness")] * 7


def test_what_a_judge_sees_to_have_failed_is_undrawable(instruments: Instruments, generator: CollageGenerator):
    looked = replace(instruments, generator=Unvouched(generator), judge=Blind())
    assert scored(looked, claim(RED, "green"), n=4)[0]["outcome"] == "undrawable"


# -- identification ------------------------------------------------------------------------------------------------------


def trial(matrix: list[list[float]], unit: int = 0, **values: object) -> Trial:
    stimuli = tuple(stimulus("positive", row[unit]) for row in matrix)
    own = Claim(unit=Unit(target="t", layer="l", index=unit), labels=("x",))
    plain = Trial(claim=own, outcome="tested", stimuli=stimuli, matrix=np.array(matrix, np.float16))
    return replace(plain, **values)  # pyright: ignore[reportArgumentType]


def test_identification_by_hand():
    """Of four images the unit is the highest on two, shares the first place with one other on one, and is last on one."""
    found = identification(trial([[3, 1, 1], [5, 0, 0], [2, 2, 0], [0, 4, 5]]))
    assert found["top1"] == pytest.approx((1 + 1 + 0.5 + 0) / 4)
    assert (found["rank"], found["units"], found["chance"]) == (1.0, 3, pytest.approx(1 / 3))


def test_all_equal_is_chance():
    found = identification(trial([[1.0] * 10] * 3))
    assert found["top1"] == pytest.approx(0.1)
    assert found["top5"] == pytest.approx(0.5)
    assert found["rank"] == pytest.approx(5.5)


def test_a_unit_that_is_always_high_does_not_win(instruments: Instruments):
    """Deviations from each unit's own mean: the unit that always answers 100 deviates by nothing."""
    stimuli = [stimulus("positive", 2), stimulus("neutral", 0)]
    responses = np.array([[2.0, 100.0], [0.0, 100.0]])
    matrix, _, _ = standardised(responses, stimuli, (np.array([0.5, 100.0]), np.array([1.0, 1.0])))
    assert identification(trial(matrix.tolist(), stimuli=tuple(stimuli)))["top1"] == 1.0


def test_a_true_description_identifies_its_unit_and_a_vague_one_does_not(instruments: Instruments):
    sharp, vague = scored(instruments, claim(STRIPES, "horizontal stripes"), claim(BLUE, "fish", "dog", "tree"))
    assert sharp["rank"] == 1.0
    assert sharp["top1"] > 3 * sharp["chance"]  # pyright: ignore[reportOperatorIssue]
    assert (vague["top1"] or 0.0) < 0.5  # pyright: ignore[reportOperatorIssue]


@pytest.mark.parametrize(("index", "expected"), [(2, [5, 9]), (5, [9, 2]), (9, [2, 5]), (3, [5, 9, 2])])
def test_partners_are_the_next_units_of_the_layer_starting_over(index: int, expected: list[int]):
    def of(index: int, layer: str = "l", **values: object) -> Trial:
        return trial([[1.0]], claim=Claim(unit=Unit(target="t", layer=layer, index=index), labels=("x",)), **values)

    there = [of(9), of(2), of(5), of(7, outcome="undrawable"), of(3, layer="other")]
    found = partners(of(index), there, 3)
    assert [one.claim.unit.index for one in found] == expected


# -- kept ----------------------------------------------------------------------------------------------------------------


def test_a_trial_is_kept_whole(instruments: Instruments):
    found = evaluate_claims([claim(RED, "red"), claim(GREEN, "green")], instruments, Design(n=3))[0]
    again = read_trial(to_parquet(found))
    assert (again.claim, again.stimuli, again.outcome) == (found.trial.claim, found.trial.stimuli, "tested")
    assert again.matrix.dtype == np.float16
    assert again.matrix.tolist() == found.trial.matrix.tolist()
    assert again.scale.tolist() == pytest.approx(found.trial.scale.tolist())


def test_a_light_trial_lacks_the_images_alone(instruments: Instruments):
    data = to_parquet(evaluate_claims([claim(RED, "red")], instruments, Design(n=2))[0])
    whole, light = read_trial(data), read_trial(data, light=True)
    assert all(s.data for s in whole.stimuli if s.role == "positive")
    assert light.stimuli == tuple(replace(s, data=b"") for s in whole.stimuli)


def test_scores_after_reading_are_the_same(instruments: Instruments):
    found = evaluate_claims([claim(RED, "red"), claim(GREEN, "green")], instruments, Design(n=3))
    again = [read_trial(to_parquet(one)) for one in found]
    for one, trial in zip(found, again, strict=True):
        assert Evaluation(trial=trial, others=partners(trial, again)).scores == one.scores


@pytest.mark.parametrize("at_once", [1, 3])
def test_scores_do_not_depend_on_how_many_claims_are_under_way(instruments: Instruments, at_once: int):
    claims = [claim(RED, "red"), claim(GREEN, "green"), claim(RED_OR_STRIPES, "red", "horizontal stripes")]
    found = [one.scores for one in evaluate_claims(claims, instruments, Design(n=3, at_once=at_once))]
    assert found == [one.scores for one in evaluate_claims(claims, instruments, Design(n=3))]


def test_scores_do_not_depend_on_the_folder_of_the_library(tmp_path: Path, instruments: Instruments):
    Image.new("RGB", (40, 40)).save(tmp_path / "only.png")
    other = replace(instruments, generator=CollageGenerator(Library.open(tmp_path), 224))
    assert scored(other, claim(RED, "red")) == scored(instruments, claim(RED, "red"))
