"""The predictive protocol: images, controls, verified stimuli, identification; on units whose truth is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from openmaia.agent.tools.seeds import seed
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, LayerProbe, Probe
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation, Partners, compare_trials, raw_group
from openmaia.evaluation.controls import prepare_reference
from openmaia.evaluation.prompts import ModelPromptWriter, PublishedPromptWriter
from openmaia.evaluation.protocol import evaluate_claims, evaluate_investigation
from openmaia.evaluation.scores import measure, score
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.storage import read_trial, to_parquet
from openmaia.evaluation.trials import LayerScale, Stimulus, Trial, run_stimuli, standardise
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.collage.scene import CollageScene
from openmaia.offline.evaluation.prompts import RulePromptWriter
from openmaia.offline.vocabulary.words import find
from tests.evaluation.scripted_model import ScriptedModel, answering, model
from tests.helpers.samples import noise

RED, GREEN, BLUE, STRIPES = (Unit(target="t", layer="mono", index=index) for index in (0, 1, 2, 3))
TARGET = ClosedFormTarget("t")


def claim(unit: Unit, *labels: str) -> Claim:
    return Claim(unit=unit, labels=labels)


class RecordingGenerator:
    """A generator that keeps its requests."""

    def __init__(self, generator: CollageGenerator):
        self._generator, self.requests = generator, list[Generation]()

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        self.requests += requests
        return self._generator.generate(requests)


def requests(generator: CollageGenerator, *labels: str, n: int = 3) -> list[Generation]:
    recording = RecordingGenerator(generator)
    prompts = RulePromptWriter().write(claim(RED, *labels), n, 0)
    run_stimuli(claim(RED, *labels), prompts, recording, TARGET, None)
    return recording.requests


def scores(services: EvaluationServices, *claims: Claim, n: int = 6) -> list[dict[str, Any]]:
    return [score(each) for each in evaluate_claims(claims, services, EvaluationDesign(n=n))]


# -- images --------------------------------------------------------------------------------------------------------------


def test_images_are_independent_of_exploration(generator: CollageGenerator):
    for request in requests(generator, "red"):
        assert request.split == "test"
        assert request.seed not in [seed(0, "explore", request.prompt, n) for n in range(50)]


def test_matched_prompts_share_a_seed():
    prompts = RulePromptWriter().write(claim(RED, "red"), 30, 0)
    assert [each.seed for each in prompts[:30]] == [each.seed for each in prompts[30:]]
    assert len({each.seed for each in prompts}) == 30


def test_equal_claims_get_equal_images():
    first, second = (RulePromptWriter().write(claim(unit, "red"), 6, 0) for unit in (RED, GREEN))
    assert first == second


@pytest.mark.parametrize("label", ["red", "circle", "grass", "horizontal stripes", "red circle"])
def test_neutral_images_match_in_size_place_and_ground(generator: CollageGenerator, label: str):
    images = [each.image for each in generator.generate(requests(generator, label, n=5))]
    for positive, neutral in zip(images[:5], images[5:], strict=True):
        a, b = (CollageScene.loads(image.recipe) for image in (positive, neutral))
        assert [(f.size, f.place) for f in a.figures] == [(f.size, f.place) for f in b.figures]
        assert [w.kind for w in find(a.ground)] == [w.kind for w in find(b.ground)]


# -- responses -----------------------------------------------------------------------------------------------------------


def test_layer_responses_equal_probes(generator: CollageGenerator):
    image = generator.generate([Generation(prompt="a red circle on a grey background", seed=1)])[0].image
    for layer, count in TARGET.info().layers.items():
        (responses,) = TARGET.respond([LayerProbe(layer=layer, image=image)])
        units = [Unit(target="t", layer=layer, index=index) for index in range(count)]
        assert responses.tolist() == [a.value for a in TARGET.probe([Probe(unit=u, image=image) for u in units])]


def test_stimuli_hold_activations_of_their_images(generator: CollageGenerator):
    prompts = RulePromptWriter().write(claim(RED, "red"), 6, 0)
    stimuli, responses = run_stimuli(claim(RED, "red"), prompts, generator, TARGET, None)
    images = generator.generate([Generation(prompt=each.prompt, seed=each.seed, split="test") for each in prompts])
    expected = [answer.value for answer in TARGET.probe([Probe(unit=RED, image=each.image) for each in images])]
    assert [stimulus.activation for stimulus in stimuli] == responses[:, 0].tolist() == expected


def stimulus(role: str, activation: float) -> Stimulus:
    return Stimulus(role=role, digest=f"{role}{activation}", activation=activation)


def test_deviations_use_exemplar_scale():
    stimuli = [stimulus("positive", 5), stimulus("neutral", 1)]
    scale = LayerScale(mean=np.array([1.0, 2.0]), std=np.array([2.0, 4.0]), top=np.array([5.0, np.nan]))
    matrix, *used = standardise(np.array([[5.0, 2.0], [1.0, 2.0]]), stimuli, scale)
    assert matrix.tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert [each.tolist() for each in used] == [[1.0, 2.0], [2.0, 4.0]]
    assert [scale.top_deviation(unit) for unit in range(2)] == [2.0, None]


def test_deviations_without_exemplars_use_controls():
    stimuli = [stimulus("positive", 4), stimulus("neutral", 0), stimulus("random", 2)]
    matrix, location, _ = standardise(np.array([[4.0], [0.0], [2.0]]), stimuli, None)
    assert location.tolist() == [1.0]
    assert matrix[:, 0].argsort().tolist() == [1, 2, 0]


def test_deviations_of_constant_unit_are_zero_and_all_are_finite():
    stimuli = [stimulus("positive", 4), stimulus("neutral", 0)]
    scale = LayerScale(mean=np.zeros(2), std=np.array([0.0, 1e-6]), top=np.ones(2))
    matrix, _, _ = standardise(np.array([[3.0, 1e30], [3.0, 0.0]]), stimuli, scale)
    assert matrix[:, 0].tolist() == [0.0, 0.0]
    assert np.isfinite(matrix).all()
    assert scale.top_deviation(0) is None


# -- scores --------------------------------------------------------------------------------------------------------------


def test_true_description_wins_on_own_images_only(services: EvaluationServices):
    own = scores(services, claim(RED, "red"), claim(STRIPES, "horizontal stripes"))[0]
    assert (own["outcome"], own["auc"], own["others"]) == ("tested", 1.0, [3])
    assert own["auc_other"] < 0.8
    assert own["positive"] > 0.9 > 0.1 > own["neutral"]
    assert own["above_neutral"] == 1.0


def test_false_description_scores_low(services: EvaluationServices):
    own = scores(services, claim(RED, "horizontal stripes"))[0]
    assert own["auc"] < 0.8
    assert own["controls"]["auc"]["low"] < 0.5


def test_wrong_label_has_worst_auc(services: EvaluationServices):
    own = scores(services, claim(RED, "red", "vertical stripes"), n=12)[0]
    assert own["worst_label"] == "vertical stripes"
    assert own["auc_worst"] < own["auc"]
    assert own["by_label"]["red"] == 1.0


@pytest.mark.parametrize(("labels", "outcome"), [((), "abstained"), (("zyzzyva",), "undrawable")])
def test_chance_is_assigned_to_untestable_claim_in_a_column_of_its_own(
    services: EvaluationServices, labels: tuple[str, ...], outcome: str
):
    own = scores(services, claim(RED, *labels), claim(GREEN, "red"))[0]
    assert (own["outcome"], own["auc"], own["auc_all"], own["above_neutral"]) == (outcome, None, 0.5, None)
    assert own["auc_other"] == 1.0, "it is still measured on the images of other units"


def test_single_claim_and_single_image_can_be_scored(services: EvaluationServices):
    own = scores(services, claim(RED, "red"), n=1)[0]
    assert (own["auc"], own["d"], own["n"]) == (1.0, None, [1, 1])
    assert (own["auc_other"], own["others"]) == (None, [])


def test_constant_unit_scores_chance(services: EvaluationServices):
    """No image of these has a circle on even ground, so the unit always answers 0."""
    own = scores(services, claim(Unit(target="t", layer="mono", index=5), "horizontal stripes"))[0]
    assert (own["auc"], own["d"], own["mad"]) == (0.5, None, None)
    assert [own["controls"]["auc"][key] for key in ("auc", "low", "high")] == [0.5, 0.5, 0.5]


class ConstantTarget(ClosedFormTarget):
    """Its first unit answers every image alike."""

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        answers = [answer.copy() for answer in super().respond(probes)]
        for answer in answers:
            answer[0] = 0.7
        return answers


def test_constant_unit_leaves_other_units_unchanged(services: EvaluationServices):
    claims = claim(RED, "red"), claim(GREEN, "green")
    constant, other = scores(replace(services, target=ConstantTarget("t")), *claims)
    assert (constant["auc"], constant["difference"], constant["d"], constant["above_neutral"]) == (0.5, 0.0, None, 0.0)
    assert other["auc"] == scores(services, *claims)[1]["auc"]


def test_label_that_is_no_string_is_refused():
    with pytest.raises(UsageError, match=r"t/mono/0, by agent: 7 is a int"):
        claim(RED, 7)  # pyright: ignore[reportArgumentType]


def test_missing_prompts_are_not_the_claims_fault(services: EvaluationServices):
    silent = replace(services, writer=PublishedPromptWriter(model(answering("no")), "repo"))
    own = score(evaluate_claims([claim(RED, "red")], silent, EvaluationDesign(preset="repo", n=6))[0])
    assert (own["outcome"], own["auc"]) == ("unwritten", None)
    assert "asked 3 times" in own["cause"]


# -- controls ------------------------------------------------------------------------------------------------------------


def test_unrelated_images_are_shared_and_show_no_claim(services: EvaluationServices):
    found = evaluate_claims([claim(RED, "red"), claim(GREEN, "green")], services, EvaluationDesign(n=12))
    digests = [{s.digest for s in each.trial.stimuli if s.role == "unrelated"} for each in found]
    assert len(digests[0] & digests[1]) >= 6
    for each, word in zip(found, ("red", "green"), strict=True):
        prompts = [s.prompt for s in each.trial.stimuli if s.role == "unrelated"]
        assert prompts
        assert not any(word in [w.name for w in find(prompt)] for prompt in prompts)


def test_unrelated_images_come_from_the_language_model(services: EvaluationServices):
    def answer(question: str, _: int) -> str:
        if "Which of them show" in question:
            return "2"
        separator = " | a green circle" if "pairs" in question else ""
        return "\n".join(f"{n}. a {word} circle{separator}" for n, word in enumerate(("red", "blue", "white"), 1))

    written = replace(services, writer=ModelPromptWriter(model(ScriptedModel(answer))))
    trial = evaluate_claims([claim(RED, "red")], written, EvaluationDesign(n=3))[0].trial
    assert [s.prompt for s in trial.stimuli if s.role == "unrelated"] == ["a red circle", "a white circle"]


def test_controls_have_scores_of_their_own(services: EvaluationServices):
    tested = replace(services, photographs=[noise(n) for n in range(4)])
    evaluation = evaluate_claims([claim(RED, "red")], tested, EvaluationDesign(n=6))[0]
    own = score(evaluation)
    assert own["auc_random"] > 0.8
    assert own["auc_unrelated"] > 0.8
    positive, photographs = (np.array(raw_group(evaluation.trial, role).values) for role in ("positive", "random"))
    assert own["mad"] == pytest.approx((positive.mean() - photographs.mean()) / photographs.std())
    assert own["clarity"] == pytest.approx(2 * own["auc_random"] - 1)


def test_controls_are_measured_once_for_all_layers(services: EvaluationServices):
    photographs = [noise(1), noise(2)]
    with_photographs = replace(services, photographs=photographs)
    reference = prepare_reference({"mono", "or"}, with_photographs, EvaluationDesign(n=2))
    assert reference.photograph_responses["mono"].shape == (2, 6)
    for n, image in enumerate(photographs):
        (expected,) = TARGET.respond([LayerProbe(layer="or", image=image)])
        assert reference.photograph_responses["or"][n].tolist() == expected.tolist()


# -- verified stimuli ----------------------------------------------------------------------------------------------------


def test_collage_verifies_its_images(services: EvaluationServices):
    trial = evaluate_claims([claim(RED, "red")], services, EvaluationDesign(n=2))[0].trial
    assert {(s.shows, s.verified_by) for s in trial.stimuli if s.role == "positive"} == {(True, "collage")}


def test_failed_images_are_left_out_of_scores(services: EvaluationServices):
    """Two labels, one of which cannot be drawn: the generator failed, the unit is not silent."""
    own = scores(services, claim(RED, "red", "red", "zyzzyva"), n=9)[0]
    assert (own["outcome"], own["failed_images"], own["shown"]) == ("tested", 3, pytest.approx(2 / 3))
    assert (own["auc"], own["n"]) == (1.0, [6, 6])


class UnverifiedGenerator(RecordingGenerator):
    """Does not know what its images show, like a diffusion model."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return [GeneratedImage(image=each.image) for each in super().generate(requests)]


class RednessJudge:
    """Sees red and nothing else, and does not know the first image that it is shown."""

    name = "redness"

    def __init__(self) -> None:
        self._calls = 0

    def judge(self, images: Sequence[Any], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        self._calls += 1
        (answer,) = TARGET.probe([Probe(unit=RED, image=images[0])])
        return [(None if self._calls == 1 else answer.value > 0.5,)]


def test_judge_verifies_what_the_generator_does_not(services: EvaluationServices, generator: CollageGenerator):
    judged = replace(services, generator=UnverifiedGenerator(generator), judge=RednessJudge())
    trial = evaluate_claims([claim(RED, "red")], judged, EvaluationDesign(n=4))[0].trial
    verdicts = [(s.shows, s.verified_by) for s in trial.stimuli if s.role in ("positive", "neutral")]
    assert verdicts == [(None, "redness")] + [(True, "redness")] * 7
    judged = replace(judged, judge=RednessJudge())
    assert scores(judged, claim(RED, "green"), n=4)[0]["outcome"] == "undrawable"


# -- identification ------------------------------------------------------------------------------------------------------


def trial(matrix: list[list[float]], unit: int = 0) -> Trial:
    stimuli = tuple(stimulus("positive", row[unit]) for row in matrix)
    own = Claim(unit=Unit(target="t", layer="l", index=unit), labels=("x",))
    zeros, ones = np.zeros(len(matrix[0])), np.ones(len(matrix[0]))
    responses = np.array(matrix, np.float16)
    return Trial(claim=own, outcome="tested", stimuli=stimuli, matrix=responses, location=zeros, scale=ones)


def identified(trial: Trial) -> Any:
    return measure(Evaluation(trial=trial, others=()))


def test_identification_by_hand():
    """Of four images the unit is the highest on two, ties for the first place on one, and is last on one."""
    found = identified(trial([[3, 1, 1], [5, 0, 0], [2, 2, 0], [0, 4, 5]]))
    assert found["top1"] == pytest.approx((1 + 1 + 0.5 + 0) / 4)
    assert (found["rank"], found["chance"]) == (1.0, pytest.approx(1 / 3))


def test_identification_of_equal_units_is_chance():
    found = identified(trial([[1.0] * 10] * 3))
    assert (found["top1"], found["top5"], found["rank"]) == pytest.approx((0.1, 0.5, 5.5))


def test_identification_ignores_units_that_are_always_high():
    stimuli = [stimulus("positive", 2), stimulus("neutral", 0)]
    scale = LayerScale(mean=np.array([0.5, 100.0]), std=np.ones(2), top=np.array([2.0, 101.0]))
    matrix, _, _ = standardise(np.array([[2.0, 100.0], [0.0, 100.0]]), stimuli, scale)
    assert identified(replace(trial(matrix.tolist()), stimuli=tuple(stimuli)))["top1"] == 1.0


def test_identification_needs_a_specific_description(services: EvaluationServices):
    sharp, vague = scores(services, claim(STRIPES, "horizontal stripes"), claim(BLUE, "fish", "cow", "plant"))
    assert sharp["rank"] == 1.0
    assert sharp["top1"] > 3 * sharp["chance"]
    assert (vague["top1"] or 0.0) < 0.5


@pytest.mark.parametrize(("index", "expected"), [(2, [5, 9]), (5, [9, 2]), (9, [2, 5]), (3, [5, 9, 2])])
def test_partners_are_the_next_units_of_the_layer(index: int, expected: list[int]):
    def of(index: int, layer: str = "l") -> Claim:
        return claim(Unit(target="t", layer=layer, index=index), f"x{index}")

    found = Partners([of(9), of(2), of(5), of(3, layer="other")], "label").nearest(of(index))
    assert [each.unit.index for each in found] == expected


# -- storage -------------------------------------------------------------------------------------------------------------


def test_stored_trial_is_complete(services: EvaluationServices):
    claims, design = [claim(RED, "red"), claim(GREEN, "green")], EvaluationDesign(n=3)
    evaluated = evaluate_claims(claims, services, design)
    restored = [read_trial(to_parquet(each)) for each in evaluated]
    assert [each.stimuli for each in restored] == [each.trial.stimuli for each in evaluated]
    assert restored[0].matrix.tolist() == evaluated[0].trial.matrix.tolist()
    assert restored[0].scale.tolist() == pytest.approx(evaluated[0].trial.scale.tolist())
    assert [score(each) for each in compare_trials(restored, design.sharing)] == [score(each) for each in evaluated]
    reference = prepare_reference({"mono"}, services, design)
    data = [evaluate_investigation(each, services, design, reference, frozenset()) for each in claims]
    assert [read_trial(each).stimuli for each in data] == [each.stimuli for each in restored]


def test_stored_images_have_the_same_activations_when_measured_again(services: EvaluationServices):
    (evaluated,) = evaluate_claims([claim(RED, "red")], services, EvaluationDesign(n=3))
    drawn = [each for each in read_trial(to_parquet(evaluated)).stimuli if each.data]
    images = [EncodedImage(data=each.data) for each in drawn]
    assert [image.digest for image in images] == [each.digest for each in drawn]
    measured = services.target.probe([Probe(unit=RED, image=image) for image in images])
    assert [each.value for each in measured] == [each.activation for each in drawn]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_stored_trial_with_a_value_that_is_no_number_is_refused(services: EvaluationServices, value: float):
    (evaluated,) = evaluate_claims([claim(RED, "red")], services, EvaluationDesign(n=2))
    trial = evaluated.trial
    first = replace(trial.stimuli[0], activation=value)
    with pytest.raises(StoreError, match="NaN or infinite"):
        read_trial(to_parquet(replace(trial, stimuli=(first, *trial.stimuli[1:]))))
    with pytest.raises(StoreError, match="NaN or infinite"):
        read_trial(to_parquet(replace(trial, matrix=np.full_like(trial.matrix, value))))


def test_trial_without_images_lacks_nothing_else(services: EvaluationServices):
    data = to_parquet(evaluate_claims([claim(RED, "red")], services, EvaluationDesign(n=2))[0])
    whole, light = read_trial(data), read_trial(data, images=False)
    assert all(s.data for s in whole.stimuli if s.role == "positive")
    assert light.stimuli == tuple(replace(s, data=b"") for s in whole.stimuli)


def test_scores_are_independent_of_dataset_folder(tmp_path: Path, services: EvaluationServices):
    Image.new("RGB", (40, 40)).save(tmp_path / "only.png")
    other = replace(services, generator=CollageGenerator(ImageDataset.open(tmp_path), 224))
    assert scores(other, claim(RED, "red")) == scores(services, claim(RED, "red"))
