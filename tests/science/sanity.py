"""The missing-label and extra-label tests of our metrics over the closed-form units. Writes analysis/sanity.json.

Oikarinen, Yan and Weng (2025) change the marks of images; we change the labels of a description, which is the input of our
metrics. A metric passes if it falls for at least PASS of the units. Detection is tested without errors of a judge: the
photographs are generated, and their prompts say what they show.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import openmaia.evaluation.analysis
from openmaia.core.images import EncodedImage
from openmaia.core.services import Generation
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.sanity import METRICS, SanityResults
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.protocol import evaluate_claims
from openmaia.evaluation.scores import flat
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.offline.closed_form import ClosedFormTarget, layers
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.evaluation.prompts import RulePromptWriter, unrelated_prompts, write_pairs
from openmaia.offline.packaged.library import fetch
from openmaia.offline.vocabulary.words import find
from tests.prepare import CACHE

FILE = Path(openmaia.evaluation.analysis.__file__).parent / "sanity.json"
PASS = 0.9

ScoresByUnit = Mapping[Unit, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SanityUnit:
    """A unit of known truth, and as many labels that it does not respond to."""

    unit: Unit
    truth: tuple[str, ...]
    wrong: tuple[str, ...]


class PromptJudge:
    """Knows from which prompt each image was generated."""

    name = "the prompts"

    def __init__(self, prompts: dict[str, str]):
        self._words = {digest: {word.name for word in find(prompt)} for digest, prompt in prompts.items()}

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        wanted = [{word.name for word in find(label)} for label in labels]
        return [tuple(words <= self._words[image.digest] for words in wanted) for image in images]


def units() -> list[SanityUnit]:
    """Returns units whose wrong labels are those of another unit of the layer that share no word with the true ones."""
    made: list[SanityUnit] = []
    for layer in ("mono", "or"):
        truths = [tuple(" ".join(slot) for slot in unit.truth) for unit in layers("small")[layer]]
        for index, truth in enumerate(truths):
            others = [other for other in truths[index + 1 :] + truths[:index] if not {*other} & {*truth}]
            made.append(SanityUnit(unit=Unit(target="t", layer=layer, index=index), truth=truth, wrong=others[0]))
    return made


def measure(smoke: bool) -> SanityResults:
    generator = CollageGenerator(ImageDataset.open(fetch(CACHE, print)), 224)
    results = results_of(generator, 2 if smoke else 12, 10 if smoke else 120)
    if not smoke:
        FILE.write_text(json.dumps(results, indent=1) + "\n")
    return results


def results_of(generator: CollageGenerator, n: int, count: int) -> SanityResults:
    labels = sorted({label for each in units() for label in each.truth})
    prompts = [*unrelated_prompts(count), *(pair.positive for pair in write_pairs(labels, count))]
    requests = [Generation(prompt=prompt, seed=1000 + k, split="test") for k, prompt in enumerate(prompts)]
    images = [each.image for each in generator.generate(requests)]
    services = EvaluationServices(
        generator=generator,
        target=ClosedFormTarget("t"),
        writer=RulePromptWriter(),
        judge=PromptJudge({image.digest: prompt for image, prompt in zip(images, prompts, strict=True)}),
        photographs=list({image.digest: image for image in images}.values()),
    )
    return run_sanity_tests(units(), services, EvaluationDesign(n=n, detect=4 * count))


def run_sanity_tests(
    units: Sequence[SanityUnit], services: EvaluationServices, design: EvaluationDesign
) -> SanityResults:
    """Runs both tests; units of one label take part in the extra-label test only."""

    def scores(labels: Mapping[Unit, tuple[str, ...]]) -> ScoresByUnit:
        claims = [Claim(unit=unit, labels=each, description="; ".join(each)) for unit, each in labels.items()]
        return {e.trial.claim.unit: flat(e.scores) for e in evaluate_claims(claims, services, design)}

    several = [each for each in units if len(each.truth) > 1]
    whole = scores({each.unit: each.truth for each in units})
    missing = scores({each.unit: each.truth[: (len(each.truth) + 1) // 2] for each in several})
    extra = scores({each.unit: each.truth + each.wrong for each in units})
    return {
        metric: {"missing_label": _falls(metric, whole, missing), "extra_label": _falls(metric, whole, extra)}
        for metric in METRICS
    }


def _falls(metric: str, whole: ScoresByUnit, changed: ScoresByUnit) -> bool:
    """A metric that is undefined for a changed description has not fallen."""
    pairs = [(whole[unit].get(metric), scores.get(metric)) for unit, scores in changed.items()]
    fallen = [before is not None and after is not None and after < before - 1e-9 for before, after in pairs]
    return sum(fallen) >= PASS * len(fallen)
