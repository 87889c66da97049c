"""The scripted experimenter on EfficientNet-Lite0: what its descriptions predict, beside baselines on equal terms, and how many
wrong descriptions pass as supported. The run and the tests of all methods are those of `openmaia run` and `openmaia evaluate
--claims`. Writes real.csv, a row per unit and method, and its section of RESULTS.md.
"""

import csv
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

from measure.measuring import machine, shown
from measure.science import sections, setting
from measure.science.baselines import BASELINES
from measure.science.evaluated import RESAMPLES, rounded
from measure.science.investigated import images, means
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.comparison import compare_runs
from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.statistics import CHANCE, proportion
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import Verdict, run_verdicts
from openmaia.evaluation.scores import COUNTED
from openmaia.runs.claimed import claim_runs
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY

CONFIG = "efficientnet-lite0"
LAYERS = {"_blocks.2": 24, "_blocks.10": 60, "_conv_head": 60}
"""Units of each layer, drawn by a hash of the weights; the first layer has no more."""

OWN = "scripted experimenter"
IMAGES = 10
"""Positive images of each description, as the demo's config says."""
CSV = Path(__file__).with_name("real.csv")
SECTION = "A real network"
AUCS = ("auc", "auc_other", "auc_minus_other", "auc_words")
MEASURES = (*AUCS, *(f"{name}_all" for name in AUCS), "auc_random", "top1", "top5", "chance")


def measure(smoke: bool) -> dict[str, Any]:
    given, folder = overrides(smoke), investigated_run(smoke)
    run = Run.open(str(folder))
    records = list(run.records(sorted(run.done())))
    budget = round(mean(map(images, records)))
    units = [record.unit for record in records]
    named = ("exemplars only",) if smoke else tuple(BASELINES)
    jobs = [BaselineJob(overrides=given, unit=unit, names=named, budget=budget) for unit in units]
    setting.ready(setting.config(CONFIG, given), list(LAYERS))
    found = setting.shared_out(labelled, jobs)
    table = write_claims(folder.with_suffix(".csv"), units, found)
    command("evaluate", str(folder), "--claims", str(table))
    methods = [(run, OWN), *((each, each.name) for each in claim_runs(run))]
    figures = {
        "units": len(units),
        "images": budget,
        "methods": {method: of_method(each, units) for each, method in methods},
        "differences": {
            pair.other: {
                each.measure: [*rounded(each.difference), each.units]
                for each in pair.differences
                if each.measure in ("auc", "auc_all")
            }
            for pair in compare_runs(methods, RESAMPLES)
            if pair.one == OWN
        },
    }
    if not smoke:
        write_units(methods)
        sections.write(SECTION, section(figures))
    return figures


def overrides(smoke: bool) -> tuple[str, ...]:
    units = ":".join(f"{layer}=random:{2 if smoke else count}" for layer, count in LAYERS.items())
    return (*setting.few(smoke), f"units={units}", f"exemplars.dataset={'few' if smoke else 'packages'}")


def investigated_run(smoke: bool) -> Path:
    """Runs the investigations, or continues them, and returns the run directory."""
    folder = setting.CACHE / "science" / "runs" / ("real-few" if smoke else "real")
    stored = (f"name={folder.name}", f"paths.runs={folder.parent}", f"paths.cache={setting.CACHE}")
    command("run", f"configs/{CONFIG}.yaml", *stored, *overrides(smoke))
    return folder


def command(*arguments: str) -> None:
    """Runs openmaia, and shows on standard error what it prints.

    A run is continued, and claims that it holds are not tested again.
    """
    subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", *arguments], cwd=REPOSITORY, stdout=sys.stderr.fileno(), check=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineJob:
    overrides: tuple[str, ...]
    unit: Unit
    names: tuple[str, ...]
    budget: int


def labelled(job: BaselineJob) -> dict[str, tuple[str, ...]]:
    own = means(CONFIG, job.overrides)
    return {name: BASELINES[name](job.unit, own, job.budget).labels for name in job.names}


def write_claims(path: Path, units: Sequence[Unit], found: Sequence[dict[str, tuple[str, ...]]]) -> Path:
    """Writes the labels of the baselines as a table of claims. A baseline without labels makes no claim."""
    with path.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(("layer", "unit", "method", "labels"))
        for unit, answers in zip(units, found, strict=True):
            table.writerows(
                (unit.layer, unit.index, name, ";".join(labels)) for name, labels in answers.items() if labels
            )
    return path


def of_method(run: Run, units: Sequence[Unit]) -> dict[str, Any]:
    """A method's scores, its verdicts, and how many of its descriptions are supported: as they are, of all units, and
    given to other units; and of random words."""
    verdicts = Counter(each.verdict for each in run_verdicts(run).values())
    scores = run_scores(run, RESAMPLES)
    return {
        "outcomes": scores.outcomes,
        "verdicts": {verdict.value: count for verdict, count in verdicts.items()},
        "supported_of_all": proportion([n < verdicts[Verdict.SUPPORTED] for n in range(len(units))]),
        "supported": {name: [round(each, 4) for each in share] for name, share in supported_shares(run).items()},
        **{name: rounded(scores.measures[name]) for name in MEASURES},
    }


def write_units(methods: Sequence[tuple[Run, str]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(
            "method layer unit verdict p q auc auc_all auc_other auc_words auc_random worst_control labels".split()
        )
        for run, method in methods:
            scores = run.scores()
            for investigation, verdict in sorted(run_verdicts(run).items()):
                own = scores.get(investigation, {})
                numbers = (
                    verdict.p,
                    verdict.q,
                    *(own.get(key) for key in ("auc", "auc_all", "auc_other", "auc_words", "auc_random")),
                )
                labels = (run.summary(investigation) or {}).get("labels") or ()
                table.writerow([
                    method, investigation.unit.layer, investigation.unit.index, verdict.verdict.value,
                    *("" if value is None else f"{value:.4g}" for value in numbers),
                    verdict.worst.name if verdict.worst else "", "; ".join(labels),
                ])  # fmt: skip


def section(figures: dict[str, Any]) -> str:
    methods, differences = figures["methods"], figures["differences"]
    own = methods[OWN]
    chosen = ", ".join(f"{count} of `{layer}`" for layer, count in LAYERS.items())
    rows = [
        f"| {name} | {each['outcomes'].get('tested', 0)} | {shown(each['auc'])} | {shown(each['auc_minus_other'])} | "
        f"{shown(_of_all(each, 'auc', figures['units']))} | {shown(_of_all(each, 'auc_minus_other', figures['units']))} | "
        f"{each['verdicts'].get('supported', 0)} | {shown(each['supported_of_all'], '.1%')} | "
        + " | ".join(shown(each["supported"].get(given), ".1%") for given in (SHUFFLED, RANDOM))
        + f" | {_compared(differences.get(name, {}).get('auc'))} |"
        for name, each in methods.items()
    ]
    return f"""EfficientNet-Lite0, {figures["units"]} units drawn by a hash of the weights, the demo's 18 among them ({chosen}; the first
layer has no more), {machine()}, {date.today().isoformat()}. `openmaia run` and `openmaia evaluate --claims`: all methods are tested on {IMAGES} images of each description with
prompts that no agent gets, and the same control images. Each unit and method is in real.csv. The experimenter abstained on {own["outcomes"].get("abstained", 0)}
units. "All": over all {figures["units"]} units, in which those without a tested description count as chance (0.5); the other columns are over the tested
descriptions. Every baseline got as many images
per unit as the experimenter was shown ({figures["images"]}).

| | tested | AUC | minus the AUC of other units' descriptions | AUC, all | the same difference, all | supported | … of all units | descriptions given to other units that are supported | random words that are supported | the experimenter's AUC minus this one's, where both were tested |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Identification: an image of the experimenter's description excites its own unit most among all units of the layer in
{own["top1"][0]:.1%} of cases ({own["top1"][1]:.1%} to {own["top1"][2]:.1%}) and is among the first five in {own["top5"][0]:.0%} ({own["top5"][1]:.0%} to {own["top5"][2]:.0%}), where chance is {own["chance"][0]:.2%}.

*Supported* is the verdict: every control is beaten with an interval above chance, and the false discovery rate is at most 5 %. Of wrong
descriptions, given to the same units, the shares in the two columns before the last pass the same rule; the interval counts each unit
once.
"""


def _of_all(figures: dict[str, Any], name: str, units: int) -> list[float | None] | None:
    """A mean over all units, as far as it is known: a baseline has no test of a unit that it says nothing about."""
    found: list[float | None] = figures[f"{name}_all"]
    counted = sum(figures["outcomes"].get(outcome, 0) for outcome in COUNTED)
    if counted == units or found[0] is None:
        return found
    # Images of other units' descriptions were not shown to those units, so that only their own AUC can be assigned.
    return [(found[0] * counted + CHANCE * (units - counted)) / units, None, None] if name == "auc" else None


def _compared(difference: list[float | None] | None) -> str:
    return "" if difference is None else f"{shown(difference[:3])}, {difference[3]:.0f} units"
