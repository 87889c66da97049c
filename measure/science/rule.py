"""The whole rule on simulated activations: how many true descriptions are supported, and how many wrong ones.

Only the network, the images and the words are simulated. Trials, looks, scores, p-values and verdicts are those of an
evaluation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from measure.measuring import machine
from measure.science import sections
from openmaia.agent.tools.seeds import seed
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, LayerProbe
from openmaia.core.units import TargetInfo, Unit
from openmaia.evaluation.analysis.significance import OWN, compute_significance
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.analysis.verdict import Verdict, judge
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import compare_trials
from openmaia.evaluation.controls import prepare_reference
from openmaia.evaluation.prompts import StimulusPrompt, prompt_rows, seed_pairs
from openmaia.evaluation.protocol import run_trials
from openmaia.evaluation.random_words import measure_random_words
from openmaia.evaluation.scores import score
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.trials import LayerScale

CSV = Path(__file__).with_suffix(".csv")
SECTION = "The rule by simulation"
LAYER = "simulated"
LABELS = tuple(f"label{number}" for number in range(11))
"""Two of these for each description: a third of all pairs of descriptions have one in common."""
WORDS = (*LABELS, *(f"word{number}" for number in range(42)))
"""As many as the vocabulary of the scripted agent had when the rule was made."""
PHOTOGRAPHS = 130
DESIGN = EvaluationDesign(n=10, looks=(20, 40, 60), random=100, detect=0)
CASES = tuple((units, auc) for units in (6, 60) for auc in (0.85, 0.95))
"""Units of the layer, and the AUC of true descriptions against every control."""
TRIALS = 360
"""Simulated descriptions for each case; half of them are true."""


@dataclass(frozen=True)
class SimulatedWriter:
    words: Sequence[str] = WORDS
    name = "simulated"

    def write(self, claim, n, run_seed, explored=frozenset(), written=()) -> list[StimulusPrompt]:
        earlier = prompt_rows(written)
        numbers = range(len(earlier), len(earlier) + n)
        labels = [claim.labels[number % len(claim.labels)] for number in numbers]
        rows = [(each, f"{each} {at}", f"without {each} {at}") for each, at in zip(labels, numbers, strict=True)]
        return seed_pairs(rows, run_seed, earlier)

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        return [f"scene {number}" for number in range(n)]

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        return frozenset()


@dataclass(frozen=True)
class SimulatedWorld:
    """Draws images that show a label or nothing, and measures units that are excited by labels.

    The activations of a unit are normal, with the same variance on all images. On an image of one of its labels they are
    higher by as much as the wanted AUC needs.
    """

    seed: int
    auc: float
    excited_by: Sequence[Sequence[str]]
    """The labels that excite each unit."""

    def info(self) -> TargetInfo:
        return TargetInfo(name="simulated", digest="", input_size=4, layers={LAYER: len(self.excited_by)})

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        return [
            GeneratedImage(image=self.image(f"{each.prompt} {each.seed}", each.prompt.split()[0])) for each in requests
        ]

    def image(self, name: str, shows: str = "") -> EncodedImage:
        pixels = np.random.default_rng(seed(self.seed, "image", name, 0)).integers(0, 256, (4, 4, 3), np.uint8)
        return EncodedImage.of(pixels, [shows])

    def respond(self, probes: Sequence[LayerProbe]) -> list[np.ndarray]:
        return [self._respond(each.image) for each in probes]

    def _respond(self, image: EncodedImage) -> np.ndarray:
        random = np.random.default_rng(seed(self.seed, "response", image.digest, 0))
        shift = np.sqrt(2) * stats.norm.ppf(self.auc)
        excited = np.array([not {*labels}.isdisjoint(image.sources) for labels in self.excited_by])
        return random.normal(size=len(excited)) + shift * excited


def measure(smoke: bool) -> dict[str, float]:
    """Simulates every case."""
    cases = [(6, 0.95)] if smoke else CASES
    table = pd.concat([simulated(units, auc, 12 if smoke else TRIALS) for units, auc in cases])
    if not smoke:
        table.to_csv(CSV, index=False)
        sections.write(SECTION, section(table))
    return {
        f"{units} units, AUC {auc}": share(case[case.true]) for (units, auc), case in table.groupby(["units", "auc"])
    }


def simulated(units: int, auc: float, trials: int) -> pd.DataFrame:
    """The outcomes of at least so many descriptions in layers of this size, one row for each."""
    return pd.concat([layer(units, auc, number) for number in range(max(trials // units, 1))])


def layer(units: int, auc: float, number: int) -> pd.DataFrame:
    """The descriptions of one layer. Units with an even index are excited by the labels of theirs, the others by none."""
    random = np.random.default_rng(number)
    pairs = list(combinations(LABELS, 2))
    labels = [pairs[at] for at in random.integers(0, len(pairs), units)]
    world = SimulatedWorld(number, auc, [own if index % 2 == 0 else () for index, own in enumerate(labels)])
    services = EvaluationServices(
        generator=world,
        target=world,
        writer=SimulatedWriter(),
        photographs=[world.image(f"photograph {at}") for at in range(PHOTOGRAPHS)],
        scales={LAYER: LayerScale(mean=np.zeros(units), std=np.ones(units), top=np.full(units, np.nan))},
    )
    design = replace(DESIGN, seed=number)
    claims = [
        Claim(unit=Unit(target="simulated", layer=LAYER, index=index), labels=own) for index, own in enumerate(labels)
    ]
    reference = prepare_reference({LAYER}, services, design)
    words = list(measure_random_words({LAYER}, services, design, reference))
    reference = replace(reference, words={LAYER: words})
    trials = {claim: run_trials([claim], services, design, reference)[0] for claim in claims}
    significance = compute_significance(
        trials.values(), trials.__getitem__, lambda layer: words, sharing=design.sharing
    )
    rows = []
    for each in compare_trials(list(trials.values()), design.sharing):
        claim = each.trial.claim
        scores = score(each) | {"p": significance.p[claim], "q": significance.q[claim]}
        verdict = judge("answer", scores)
        wrong = {f"of {name}": share[0] for name, share in significance.supported.items() if name != OWN}
        rows.append(
            {"units": units, "auc": auc, "run": number, "index": claim.unit.index, "true": claim.unit.index % 2 == 0}
            | {"verdict": verdict.verdict.value, "p": scores["p"], "q": scores["q"], "images": scores["images"]}
            | {"worst": verdict.worst.key if verdict.worst else "", **wrong}
        )
    return pd.DataFrame(rows)


def share(rows: pd.DataFrame) -> float:
    return float((rows.verdict == Verdict.SUPPORTED).mean())


def section(table: pd.DataFrame) -> str:
    return f"""By simulation, {date.today().isoformat()}, {machine()}, `make science only=rule`; each description is a row of rule.csv. Normal
activations, {len(WORDS)} random words, looks at {", ".join(map(str, DESIGN.sizes))} images of each kind. Half of the descriptions are true: their images excite the
unit with the stated AUC against every control; the other half says nothing about its unit. A third of the pairs of descriptions has a label in common.

| units | true AUC | true: supported | undecided | images | wrong: supported (95 % interval) | images | of other units | of random words |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(row(*key, case) for key, case in table.groupby(["units", "auc"]))}
"""


def row(units: int, auc: float, case: pd.DataFrame) -> str:
    true, wrong = case[case.true], case[~case.true]
    outcomes = Counter(true.verdict)
    low, high = wilson(share(wrong), len(wrong))
    given = " | ".join(f"{case[f'of {kind}'].mean():.4f}" for kind in ("shuffled descriptions", "random words"))
    return (
        f"| {units} | {auc} | {share(true):.2f} of {len(true)} | {outcomes['undecided'] / len(true):.2f} | "
        f"{true.images.mean():.0f} | {share(wrong):.3f} ({low:.3f} to {high:.3f}) of {len(wrong)} | "
        f"{wrong.images.mean():.0f} | {given} |"
    )
