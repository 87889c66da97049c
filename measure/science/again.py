"""How often the rule supports a description again with other images, on simulated activations: of layers in which
descriptions are worth more or less, as those in repeat.csv are. Writes again.csv, a row per description and world, and its
section of RESULTS.md.

The layers, the labels of all descriptions and so which of them share one are those of repeat.csv. How strongly a unit
responds to what a label names is drawn at random; the moments of the distributions (`Spread`) come from real.csv. A world
is tested twice with images of their own by each design. Trials, looks, scores, p-values and verdicts are those of an
evaluation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from measure.measuring import machine, shown
from measure.science import repeat, sections
from measure.science.rule import DESIGN, PHOTOGRAPHS, SimulatedWriter
from openmaia.agent.tools.seeds import seed
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, LayerProbe
from openmaia.core.units import TargetInfo, Unit
from openmaia.evaluation.analysis.sequential import levels
from openmaia.evaluation.analysis.significance import compute_significance
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import Verdict, judge
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import compare_trials
from openmaia.evaluation.controls import ReferenceData, prepare_reference
from openmaia.evaluation.protocol import run_trials
from openmaia.evaluation.random_words import measure_random_words
from openmaia.evaluation.scores import score
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.trials import LayerScale, Trial

CSV = Path(__file__).with_suffix(".csv")
SECTION = "How often a verdict repeats, by simulation"
WORLDS = 2
NEUTRAL, SCENE, PHOTOGRAPH = "without", "scene", "photograph"
"""What images of neutral prompts, of unrelated prompts and photographs show. The prompts of `SimulatedWriter` begin with it."""

Effects = Mapping[str, npt.NDArray[np.float64]]
"""For what an image can show, the mean response of each unit to it, (units,), in standard deviations between images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and standard deviation over units of the mean response to images, minus that to neutral ones.

    AUCs of real.csv give the means, such as 1.3 for an AUC of 0.82. The standard deviations and `paired` were chosen so that the
    default design has about the shares of repeat.csv: of each verdict, of each reason, and of equal verdicts.
    """

    own: tuple[float, float] = (1.3, 0.5)
    other: tuple[float, float] = (0.05, 0.62)
    """Of a word that is no label of the unit."""
    units: tuple[float, float] = (0.2, 0.3)
    """How far units differ in the mean of `other`, and in the logarithm of its standard deviation."""
    photographs: tuple[float, float] = (0.55, 0.55)
    unrelated: tuple[float, float] = (0.25, 0.45)
    paired: float = 0.6
    """The share of the variance between images that those of one seed have in common: a positive image and its neutral one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How many images a test has."""

    name: str
    looks: tuple[int, ...]
    """Numbers of positive images."""
    returns: bool = False
    """Whether descriptions that are undecided in the end get all images of the last look, after which all verdicts are
    derived anew."""

    @property
    def settings(self) -> EvaluationDesign:
        return replace(DESIGN, n=self.looks[0], looks=self.looks[1:])


DESIGNS = (
    Design(name="10, 20, 40, 60 (the default)", looks=(10, 20, 40, 60)),
    Design(name="10, 20, 40, 60, 80", looks=(10, 20, 40, 60, 80)),
    Design(name="40, 60", looks=(40, 60)),
    Design(name="the default, then 60 for all that are undecided", looks=(10, 20, 40, 60), returns=True),
)


@dataclass(frozen=True)
class SpreadWorld:
    """Draws images that show a label or nothing. Responses are normal, with the same variance on all images."""

    number: int
    images: int
    """Images of another number are others."""
    effects: Mapping[str, Effects]
    """By layer."""
    paired: float

    def info(self) -> TargetInfo:
        layers = {layer: len(effects[SCENE]) for layer, effects in self.effects.items()}
        return TargetInfo(name="simulated", digest="", input_size=4, layers=layers)

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return [
            GeneratedImage(image=self.image(each.prompt, each.prompt.rpartition(" ")[0], each.seed))
            for each in requests
        ]

    def image(self, name: str, shows: str, layout: int) -> EncodedImage:
        random = np.random.default_rng(seed(self.images, "image", f"{self.number} {name}", layout))
        return EncodedImage.of(random.integers(0, 256, (4, 4, 3), np.uint8), [f"{shows}|{layout}"])

    def respond(self, probes: Sequence[LayerProbe]) -> list[npt.NDArray[np.float64]]:
        return [self._respond(each.layer, each.image) for each in probes]

    def _respond(self, layer: str, image: EncodedImage) -> npt.NDArray[np.float64]:
        effects, (shows, _, layout) = self.effects[layer], image.sources[0].partition("|")
        mean = 0.0 if shows.startswith(NEUTRAL) else effects[shows]
        common, own = (
            np.random.default_rng(seed(self.images, "response", f"{self.number} {layer} {of}", 0)).normal(
                size=len(effects[SCENE])
            )
            for of in (layout, image.digest)
        )
        return mean + np.sqrt(self.paired) * common + np.sqrt(1 - self.paired) * own


def measure(smoke: bool) -> dict[str, Any]:
    designs, worlds, each = (DESIGNS[:1], 1, 4) if smoke else (DESIGNS, WORLDS, None)
    table = pd.concat([twice(design, number, each) for number in range(worlds) for design in designs])
    if not smoke:
        table.to_csv(CSV, index=False)
        sections.write(SECTION, section(table))
    return {name: summarised(rows) for name, rows in table.groupby("design", sort=False)}


def twice(design: Design, number: int, each: int | None = None) -> pd.DataFrame:
    """Tests the descriptions of one world with two sets of images. `each`: descriptions of a layer, at most."""
    claims = claimed(each)
    spread = Spread()
    effects = drawn(claims, spread, number)
    first, second = (tested(SpreadWorld(number, images, effects, spread.paired), claims, design) for images in (1, 2))
    rows = [
        {"design": design.name, "world": number, "layer": claim.unit.layer, "index": claim.unit.index}
        | {"own": round(float(effects[claim.unit.layer][claim.labels[0]][claim.unit.index]), 3)}
        | {"images": first[claim][0], "verdict": first[claim][1].value}
        | {"images_2": second[claim][0], "verdict_2": second[claim][1].value}
        for claim in claims
    ]
    return pd.DataFrame(rows)


def claimed(each: int | None) -> list[Claim]:
    """The labels of repeat.csv, for units that are numbered within their layers."""
    table = pd.read_csv(repeat.CSV, keep_default_na=False)
    return [
        Claim(unit=Unit(target="simulated", layer=str(layer), index=index), labels=tuple(labels.split("; ")))
        for layer, rows in table.groupby("layer", sort=False)
        for index, labels in enumerate(rows.labels[:each])
    ]


def drawn(claims: Sequence[Claim], spread: Spread, number: int) -> dict[str, Effects]:
    """Draws how strongly each unit responds to what images can show. All labels of a description excite its unit as much."""
    random = np.random.default_rng(number)
    words = sorted({label for claim in claims for label in claim.labels})
    found: dict[str, Effects] = {}
    for layer in dict.fromkeys(claim.unit.layer for claim in claims):
        own = [claim for claim in claims if claim.unit.layer == layer]
        shift, scale = random.normal(0, spread.units[0], len(own)), np.exp(random.normal(0, spread.units[1], len(own)))
        mean, deviation = spread.other
        effects = {word: mean + shift + deviation * scale * random.normal(size=len(own)) for word in words}
        for claim, effect in zip(own, random.normal(*spread.own, len(own)), strict=True):
            for label in claim.labels:
                effects[label][claim.unit.index] = effect
        effects[SCENE] = random.normal(*spread.unrelated, len(own))
        effects[PHOTOGRAPH] = random.normal(*spread.photographs, len(own))
        found[layer] = effects
    return found


def tested(world: SpreadWorld, claims: Sequence[Claim], design: Design) -> dict[Claim, tuple[int, Verdict]]:
    """Returns the number of positive images of each description, and its verdict."""
    layers = world.info().layers
    scales = {n: LayerScale(mean=np.zeros(u), std=np.ones(u), top=np.full(u, np.nan)) for n, u in layers.items()}
    words = tuple(sorted({label for claim in claims for label in claim.labels}))
    services = EvaluationServices(
        generator=world,
        target=world,
        writer=SimulatedWriter(words),
        photographs=[world.image(f"photograph {at}", PHOTOGRAPH, at) for at in range(PHOTOGRAPHS)],
        scales=scales,
    )
    settings = design.settings
    reference = prepare_reference(layers, services, settings)
    random_words = list(measure_random_words(layers, services, settings, reference))
    by_layer = {layer: [each for each in random_words if each.claim.unit.layer == layer] for layer in layers}
    reference = replace(reference, words=by_layer)
    trials = {claim: run_trials([claim], services, settings, reference)[0] for claim in claims}
    verdicts = judged(trials, reference, settings)
    if design.returns:
        more = replace(settings, n=settings.sizes[-1], looks=())
        for claim, verdict in verdicts.items():
            if verdict is Verdict.UNDECIDED and len(trials[claim].looks) < len(settings.sizes):
                # Prompts and seeds are numbered, so that the images so far are among them.
                trial = run_trials([claim], services, more, reference)[0]
                trials[claim] = replace(trial, looks=settings.sizes, miss=levels(settings.sizes)[-1])
        verdicts = judged(trials, reference, settings)
    return {claim: (trials[claim].looks[-1], verdict) for claim, verdict in verdicts.items()}


def judged(trials: Mapping[Claim, Trial], reference: ReferenceData, settings: EvaluationDesign) -> dict[Claim, Verdict]:
    words = reference.words
    significance = compute_significance(
        trials.values(), trials.__getitem__, lambda layer: words[layer], wrong=0, sharing=settings.sharing
    )
    found: dict[Claim, Verdict] = {}
    for each in compare_trials([*trials.values()], settings.sharing):
        claim = each.trial.claim
        numbers = {"p": significance.p[claim], "q": significance.q[claim], "null": significance.null[claim]}
        found[claim] = judge("answer", score(each) | numbers).verdict
    return found


def summarised(table: pd.DataFrame) -> dict[str, Any]:
    """The shares that repeat.summarised has, and the mean number of positive images."""
    pairs = [*zip(table.verdict, table.verdict_2, strict=True)]
    ordered = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    supported = Verdict.SUPPORTED.value
    return {
        "supported": proportion([one == supported for one, _ in ordered]),
        "again": proportion([other == supported for one, other in ordered if one == supported]),
        "contradicted": proportion([{*pair} == {supported, Verdict.NOT_SUPPORTED.value} for pair in pairs]),
        "same": proportion([one == other for one, other in pairs]),
        "images": float(pd.concat([table.images, table.images_2]).mean()),
    }


def section(table: pd.DataFrame) -> str:
    spread = Spread()
    return f"""By simulation, {date.today().isoformat()}, {machine()}, `make science only=again`; each description is a row of again.csv. {table.world.nunique()} worlds with
the layers and labels of the {len(claimed(None))} descriptions of repeat.csv, each tested twice with images of their own by the whole rule. How much a unit
responds to what a description names varies: its mean difference to neutral images is normal over units, {spread.own[0]} ± {spread.own[1]} standard
deviations between images (an AUC of 0.82 on average), {spread.other[0]} ± {spread.other[1]} for words that are no label of the unit, {spread.photographs[0]} ± {spread.photographs[1]} for photographs.

| images of each kind | supported | of those that one set supports, the other supports | supported and not supported | same verdict | mean number of images |
|---|---|---|---|---|---|
{chr(10).join(rows(table))}

By the true AUC of a description's own images against neutral ones, with the default:

| true AUC | descriptions | supported | of those that one set supports, the other supports |
|---|---|---|---|
{chr(10).join(by_truth(table[table.design == DESIGNS[0].name]))}
"""


def rows(table: pd.DataFrame) -> list[str]:
    figures = {str(name): summarised(part) for name, part in table.groupby("design", sort=False)}
    return [
        f"| {name} | {shown(each['supported'], '.1%')} | {shown(each['again'], '.1%')} | {shown(each['contradicted'], '.1%')} | "
        f"{shown(each['same'], '.1%')} | {each['images']:.0f} |"
        for name, each in figures.items()
    ]


BOUNDS = (0.0, 0.75, 0.85, 0.95, 1.0)
"""Between groups of true AUCs."""


def by_truth(table: pd.DataFrame) -> list[str]:
    auc = stats.norm.cdf(table.own / np.sqrt(2))
    groups = [(low, high, table[(auc > low) & (auc <= high)]) for low, high in pairwise(BOUNDS)]
    figures = [(low, high, len(part), summarised(part)) for low, high, part in groups if len(part)]
    return [
        f"| {low:.2f} to {high:.2f} | {count} | {shown(each['supported'], '.1%')} | {shown(each['again'], '.1%')} |"
        for low, high, count, each in figures
    ]
