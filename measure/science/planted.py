"""Directions of a middle layer that respond to a given concept, as units of known truth. Each is a linear probe, fitted by
least squares to collages of the explore split, and given to the program as `target.directions`. Writes planted.csv, a row
per unit, and its section of RESULTS.md.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

from measure.measuring import machine, shown
from measure.science import sections, setting
from measure.science.real import CONFIG, command
from openmaia.agent.tools.seeds import seed
from openmaia.assembly import hosts, targets
from openmaia.core.services import Generation
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts
from openmaia.evaluation.claims import read_claims
from openmaia.offline.evaluation.prompts import write_pairs
from openmaia.offline.vocabulary.words import WordKind, find, of_kind
from openmaia.runs.run import Run
from tests.helpers.looking import look

LAYER = "_blocks.10"
"""The layer in the middle of the network that the demo studies, too."""
OBJECTS = (
    "bird", "fish", "hoofed animal", "carnivore", "fruit", "vegetable", "flower", "musical instrument", "ball", "vehicle",
    "tool", "gravestone", "planet", "road sign", "building",
)  # fmt: skip
"""The general words for objects none of which is a special case of another one."""
CONCEPTS = (*OBJECTS, *(word.name for word in of_kind(WordKind.PATTERN)))
IMAGES = 40
"""Collages of each concept."""
PENALTY = 10.0
"""Of the squared weights, for channels with a standard deviation of 1."""
ROUNDS = 6
"""Fits of each direction."""
CSV = Path(__file__).with_name("planted.csv")
SECTION = "Planted units"

Floats = npt.NDArray[np.float64]


def measure(smoke: bool) -> dict[str, Any]:
    folder = setting.CACHE / "science" / "planted"
    folder.mkdir(parents=True, exist_ok=True)
    concepts, images = (CONCEPTS[:3], 6) if smoke else (CONCEPTS, IMAGES)
    name = f"planted{'-few' if smoke else ''}"
    path = folder / f"{name}.safetensors"
    if not path.exists():
        plant(concepts, images, path)
    runs = setting.CACHE / "science" / "runs"
    command(
        "run",
        f"configs/{CONFIG}.yaml",
        f"name={name}",
        f"paths.runs={runs}",
        f"paths.cache={setting.CACHE}",
        f"target.name={name}",
        f"target.layers=[{LAYER}]",
        f"target.directions={{{LAYER}: {path}}}",
        f"units={LAYER}/directions={'0' if smoke else 'all'}",
        *setting.few(smoke),
    )
    found = described(Run.open(str(runs / name)), concepts)
    figures = summarised(found)
    if not smoke:
        write_units(found)
        sections.write(SECTION, section(figures))
    return figures


def plant(concepts: Sequence[str], images: int, path: Path) -> None:
    """Writes the directions, one for each concept."""
    settings = setting.config(CONFIG, (f"target.layers=[{LAYER}]",))
    generator, target = hosts.host("generator", settings), targets.target(settings)
    maps: list[npt.NDArray[np.float32]] = []
    shown_in: list[str] = []
    for concept in concepts:
        prompts = [pair.positive for pair in write_pairs([concept], images, settings.seed)]
        drawn = generator.generate([
            Generation(prompt=prompt, seed=seed(settings.seed, "explore", f"planted: {prompt}", number), split="explore")
            for number, prompt in enumerate(prompts)
        ])  # fmt: skip
        maps += [responses[LAYER] for _, responses in look(target, [each.image.pixels for each in drawn])]
        shown_in += [concept] * len(prompts)
    positions = np.stack([each.reshape(len(each), -1).T for each in maps]).astype(np.float64)
    fitted = [fit(positions, np.array([float(each == concept) for each in shown_in])) for concept in concepts]
    weight, bias = (np.stack(each) for each in zip(*fitted, strict=True))
    save_file({"weight": torch.from_numpy(weight).float(), "bias": torch.from_numpy(bias).float()}, path)


def fit(positions: Floats, shows: Floats) -> tuple[Floats, Floats]:
    """Returns the weights and the bias of a direction whose largest response tells whether an image shows a concept.

    The first fit is to the mean over positions. Each further one is to the position where the direction before responds
    most, because the activation of a unit is its largest response.

    Args:
        positions: (images, positions, channels)
        shows: 1 for the images that show the concept, 0 for the others, (images,)
    """
    features, weight, bias = positions.mean(axis=1), np.zeros(positions.shape[2]), np.zeros(())
    for _ in range(ROUNDS):
        centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
        standard = (features - centre) / scale
        penalty = PENALTY * np.eye(standard.shape[1])
        weight = np.linalg.solve(standard.T @ standard + penalty, standard.T @ (shows - shows.mean())) / scale
        bias = shows.mean() - weight @ centre
        features = positions[np.arange(len(positions)), (positions @ weight).argmax(axis=1)]
    return weight, bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A planted concept with the labels that its unit got, and their verdict."""

    concept: str
    labels: tuple[str, ...]
    verdict: UnitVerdict

    @property
    def is_right(self) -> bool:
        """Whether every label names the concept, alone or with further words such as a colour."""
        return bool(self.labels) and all(self.concept in _words(label) for label in self.labels)

    @property
    def is_exact(self) -> bool:
        """Whether there are labels, and every one names the concept and nothing else."""
        return bool(self.labels) and all(_words(label) == {self.concept} for label in self.labels)


def _words(label: str) -> set[str]:
    return {word.name for word in find(label)}


def described(run: Run, concepts: Sequence[str]) -> list[Planted]:
    verdicts = run_verdicts(run)
    return [
        Planted(concept=concepts[claim.unit.index], labels=claim.labels, verdict=verdicts[claim.investigation])
        for claim in read_claims(run)
    ]


def summarised(units: Sequence[Planted]) -> dict[str, Any]:
    return {name: _of_group([each for each in units if each.concept in group]) for name, group in _groups().items()}


def _groups() -> Mapping[str, Sequence[str]]:
    return {"objects": OBJECTS, "patterns": [each for each in CONCEPTS if each not in OBJECTS], "all": CONCEPTS}


def _of_group(units: Sequence[Planted]) -> dict[str, Any]:
    supported = [each for each in units if each.verdict.verdict is Verdict.SUPPORTED]
    return {
        "units": len(units),
        "supported_right": proportion([each.is_right and each in supported for each in units]),
        "supported_exact": sum(each.is_exact for each in supported),
        "supported_wrong": sum(not each.is_right for each in supported),
        **{
            each.value: sum(unit.verdict.verdict is each for unit in units)
            for each in (Verdict.UNDECIDED, Verdict.NOT_SUPPORTED, Verdict.ABSTAINED)
        },
        "right": proportion([each.is_right for each in units]),
    }


def write_units(units: Sequence[Planted]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("concept verdict right exact p q worst_low labels".split())
        for each in units:
            numbers = (each.verdict.p, each.verdict.q, each.verdict.worst.low if each.verdict.worst else None)
            table.writerow([
                each.concept, each.verdict.verdict.value, int(each.is_right), int(each.is_exact),
                *("" if value is None else f"{value:.4g}" for value in numbers), "; ".join(each.labels),
            ])  # fmt: skip


def section(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {each['units']} | {shown(each['supported_right'], '.1%')} | {each['supported_exact']} | "
        f"{each['supported_wrong']} | {each['undecided']} | {each['not supported']} | {each['abstained']} | "
        f"{shown(each['right'], '.1%')} |"
        for name, each in figures.items()
    ]
    return f"""Each unit is a direction of `{LAYER}` of EfficientNet-Lite0 that was fitted to respond to one concept: by least squares, on {IMAGES}
collages of each of {len(CONCEPTS)} concepts from the explore split, against those of all others. {machine()}, {date.today().isoformat()},
`make science only=planted`. A fit is not perfect: a direction may respond to other things as well, and a description that says so counts
as wrong. *Right*: every label names the concept, alone or with further words. *Exact*: with nothing else. Each unit is in planted.csv.

| concepts | units | supported and right | … and exact | supported and wrong | undecided | not supported | abstained | right, whatever the verdict |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
