"""The missing-label and extra-label tests of our metrics on graded, noisy closed-form units. Writes analysis/sanity.json.

Oikarinen, Yan and Weng (2025) change the marks of images; we change the labels of a description, which is the input of our
metrics. A metric passes if it falls for at least PASS of the units. Detection and fuzzing are tested without errors of a judge:
the photographs are generated, and their scenes say what they show, and where.

The units are those of the development set that respond to either of two concepts, so that all take part in both tests. The
file holds a stamp of the code that it judges (`stamp`), which a fast test compares with the code.
"""

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np

import openmaia.evaluation.analysis
from measure.measuring import machine
from measure.science import sections, setting
from openmaia.core.images import EncodedImage, whole
from openmaia.core.services import Exemplar, Generation, UnitExemplars
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.sanity import TESTS, SanityResults, judged_metrics
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import compare_trials
from openmaia.evaluation.controls import prepare_reference, respond
from openmaia.evaluation.judging.fuzzing import CELLS, SIDE, part
from openmaia.evaluation.metric import all_metrics
from openmaia.evaluation.protocol import run_trials
from openmaia.evaluation.scores import measure as measure_metrics
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.sightings import TOP
from openmaia.evaluation.trials import Trial
from openmaia.offline.closed_form.family import units as closed_form_units
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.collage.compose import layout
from openmaia.offline.collage.scene import CollageScene, SceneFigure
from openmaia.offline.evaluation.prompts import RulePromptWriter, unrelated_prompts, write_pairs
from openmaia.offline.packaged.library import fetch
from openmaia.offline.vocabulary.words import find
from tests.conftest import REPOSITORY
from tests.prepare import CACHE

FILE = Path(openmaia.evaluation.analysis.__file__).parent / "sanity.json"
SECTION = "Sanity of the metrics"
PASS = 0.9
LAYER, UNITS = "or", 64

METRIC_FILES = (REPOSITORY / "openmaia/evaluation/metrics").glob("*.py")

JUDGED = (
    "openmaia/evaluation/compared.py",
    "openmaia/evaluation/metric.py",
    "openmaia/evaluation/scores.py",
    "openmaia/evaluation/sightings.py",
    "openmaia/evaluation/trials.py",
    "openmaia/evaluation/controls.py",
    "openmaia/evaluation/analysis/statistics.py",
    "openmaia/evaluation/judging/detection.py",
    "openmaia/evaluation/judging/fuzzing.py",
    "openmaia/offline/evaluation/prompts.py",
    "measure/science/sanity.py",
    *sorted(f"openmaia/evaluation/metrics/{file.name}" for file in METRIC_FILES),
)
"""The code that determines the metrics, and the tests themselves."""

ScoresByUnit = Mapping[Unit, Mapping[str, float | None]]


def stamp() -> str:
    """Returns a digest of the JUDGED code. Comments, docstrings, the form of the code and how metrics are shown do not enter."""
    trees = [_without_texts(ast.parse((REPOSITORY / name).read_text())) for name in JUDGED]
    return hashlib.sha256("\n".join(map(ast.dump, trees)).encode()).hexdigest()


_SHOWN = {"title", "column", "hint", "project", "order", "images", "shown", "visible"}
"""Fields of a metric that say how it is shown."""


def _without_texts(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Metric":
            node.keywords = [each for each in node.keywords if each.arg not in _SHOWN]
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [
                each
                for each in body
                if not (
                    isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                )
            ]
    return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SanityUnit:
    """A unit of known truth, and as many labels that it does not respond to."""

    unit: Unit
    truth: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StrongestPhotographs:
    """The photographs that excite a unit most, in place of a store of exemplars."""

    photographs: Sequence[EncodedImage]
    responses: FloatArray
    """(photographs, units)"""

    def read(self, unit: Unit) -> UnitExemplars:
        strongest = np.argsort(-self.responses[:, unit.index], kind="stable")[:TOP].tolist()
        exemplars = [
            Exemplar(
                kind="top",
                rank=rank,
                activation=float(self.responses[row, unit.index]),
                image=self.photographs[row],
                box=whole(self.photographs[row].pixels),
                map=None,
            )
            for rank, row in enumerate(strongest)
        ]
        return UnitExemplars(unit=unit, threshold=0.0, exemplars=tuple(exemplars))


class SceneJudge:
    """Knows which scene each photograph shows, and in which part of it each figure is."""

    name = "the scenes"

    def __init__(self, images: Sequence[EncodedImage]):
        self._images = {image.digest: image for image in images}
        self._parts: dict[str, set[str]] = {}

    def judge(self, images: Sequence[EncodedImage], labels: Sequence[str]) -> list[tuple[bool | None, ...]]:
        wanted = [{word.name for word in find(label)} for label in labels]
        visible = [self._visible(image) for image in images]
        return [tuple(words <= seen for words in wanted) for seen in visible]

    def _visible(self, image: EncodedImage) -> set[str]:
        if image.digest in self._images:
            scene = CollageScene.loads(image.recipe)
            return _ground(scene).union(*map(_words, scene.figures))
        if image.digest not in self._parts:
            whole = self._images[image.sources[0]]
            self._parts[image.digest] = seen_in(_where(image, whole), CollageScene.loads(whole.recipe), whole.size[0])
        return self._parts[image.digest]


def seen_in(window: tuple[float, float], scene: CollageScene, size: int) -> set[str]:
    """The words of the figures of which half are in a part of an image, or which fill half of it, and of the background if it
    fills half of it. `window` is the left and the upper end of the part in pixels."""
    side, free, words = size * SIDE / CELLS, 1.0, set[str]()
    for figure, (*centre, length) in zip(scene.figures, layout(scene, size), strict=True):
        width, height = (
            max(min(start + side, middle + length / 2) - max(start, middle - length / 2), 0.0)
            for start, middle in zip(window, centre, strict=True)
        )
        free -= width * height / side**2
        if width * height >= min(side, length) ** 2 / 2:
            words |= _words(figure)
    return words | (_ground(scene) if free >= 0.5 else set())


def _words(figure: SceneFigure) -> set[str]:
    return {figure.what, figure.colour, figure.pattern}


def _ground(scene: CollageScene) -> set[str]:
    return {scene.ground, scene.ground_colour}


def _where(cut: EncodedImage, whole: EncodedImage) -> tuple[float, float]:
    """The left and the upper end of a part in pixels of the image of which it is a part."""
    width, height = whole.size
    for row, column in np.ndindex(CELLS - SIDE + 1, CELLS - SIDE + 1):
        if np.array_equal(part(whole, (0.0, 0.0, width, height), row, column), cut.pixels):
            return column * width / CELLS, row * height / CELLS
    raise AssertionError("the image is no part of the other one")


def units(count: int = UNITS) -> list[SanityUnit]:
    """Returns units whose wrong labels are those of another unit of the layer that share no word with the true ones."""
    truths = [
        tuple(" ".join(slot) for slot in unit.truth) for unit in closed_form_units("development", LAYER, (count, 0))
    ]
    made: list[SanityUnit] = []
    for index, truth in enumerate(truths):
        wrong = next(other for other in truths[index + 1 :] + truths[:index] if not {*other} & {*truth})
        made.append(SanityUnit(unit=Unit(target="t", layer=LAYER, index=index), truth=truth, wrong=wrong))
    return made


def measure(smoke: bool) -> dict[str, object]:
    """Runs both tests; the kinds of labels are shared out over processes."""
    fetch(CACHE, print)
    count, n, photographs = (8, 2, 10) if smoke else (UNITS, 10, 120)
    jobs = [SanityJob(labels=kind, units=count, n=n, photographs=photographs) for kind in ("whole", *TESTS)]
    whole, *changed = [_scores(trials) for trials in setting.shared_out(tried, jobs)]
    shares = {
        metric: {test: _share_fallen(metric, whole, scores) for test, scores in zip(TESTS, changed, strict=True)}
        for metric in judged_metrics()
    }
    results: SanityResults = {
        metric: {test: share >= PASS for test, share in tests.items()} for metric, tests in shares.items()
    }
    document = {"stamp": stamp(), "units": count, "pass": PASS, "results": results, "shares": shares}
    if not smoke:
        FILE.write_text(json.dumps(document, indent=1) + "\n")
        sections.write(SECTION, section(shares))
    return document


def section(shares: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        f"| {all_metrics()[metric].text} | {' | '.join(f'{tests[name]:.2f}' + ', passed' * (tests[name] >= PASS) for name in TESTS)} |"
        for metric, tests in shares.items()
    ]
    passed = [all_metrics()[metric].text for metric, tests in shares.items() if tests["missing_label"] >= PASS]
    return f"""{machine()}, {date.today().isoformat()}, `make science only=sanity`. Share of {UNITS} graded, noisy units, each of which responds to either of two
concepts, for which a metric falls when one of the two true labels is removed, and when two wrong ones are added. It passes at
{PASS}. Ten prompts of each description; the photographs for detection are generated, so that few of them show a label.
`sanity.json` holds a stamp of the code that it judges, which a test checks.

| | missing label | extra label |
|---|---|---|
{chr(10).join(rows)}

Passed the missing-label test: {", ".join(passed) or "none"}.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanityJob:
    """Descriptions of all units: their whole truth, half of it (missing_label), or as many wrong labels with it (extra_label)."""

    labels: str
    units: int
    n: int
    photographs: int


def tried(job: SanityJob) -> list[Trial]:
    """Tests the descriptions of a job."""
    chosen = units(job.units)
    services = _services(job.units, job.photographs)
    design = EvaluationDesign(n=job.n, detect=4 * job.photographs, random_words=0)
    reference = prepare_reference({LAYER}, services, design)
    given = {
        "whole": [each.truth for each in chosen],
        "missing_label": [each.truth[: (len(each.truth) + 1) // 2] for each in chosen],
        "extra_label": [each.truth + each.wrong for each in chosen],
    }[job.labels]
    claims = [
        Claim(unit=each.unit, labels=labels, description="; ".join(labels))
        for each, labels in zip(chosen, given, strict=True)
    ]
    return [run_trials([claim], services, design, reference)[0] for claim in claims]


@cache
def _services(count: int, photographs: int) -> EvaluationServices:
    generator = CollageGenerator(ImageDataset.open(fetch(CACHE, print)), 224)
    labels = sorted({label for each in units(count) for label in each.truth})
    prompts = [*unrelated_prompts(photographs), *(pair.positive for pair in write_pairs(labels, photographs))]
    requests = [Generation(prompt=prompt, seed=1000 + k, split="test") for k, prompt in enumerate(prompts)]
    images = [each.image for each in generator.generate(requests)]
    shown = list({image.digest: image for image in images}.values())
    target = ClosedFormTarget("t", units={LAYER: closed_form_units("development", LAYER, (count, 0))})
    return EvaluationServices(
        generator=generator,
        target=target,
        writer=RulePromptWriter(),
        judge=SceneJudge(images),
        exemplars=StrongestPhotographs(shown, respond(shown, [LAYER], target)[LAYER]),
        photographs=shown,
    )


def _scores(trials: Sequence[Trial]) -> ScoresByUnit:
    return {each.trial.claim.unit: measure_metrics(each) for each in compare_trials(trials, "labels")}


def _share_fallen(metric: str, whole: ScoresByUnit, changed: ScoresByUnit) -> float:
    """Returns the share of units for which a metric falls. One that is undefined for a changed description has not fallen."""
    pairs = [(whole[unit].get(metric), scores.get(metric)) for unit, scores in changed.items()]
    fallen = [before is not None and after is not None and after < before - 1e-9 for before, after in pairs]
    return round(sum(fallen) / len(fallen), 4)
