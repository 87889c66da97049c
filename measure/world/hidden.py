"""Hidden units of the network that learned drawn scenes: what the scripted agent and a plain search say of them, and of the
same network untrained. Writes hidden.csv, a row per unit and run.

The units were fixed before they were measured: EACH of each layer by a hash, without the first units, on which the agent was
tuned.
"""

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.science import setting
from measure.science.evaluated import RESAMPLES, rounded
from measure.science.real import command
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import mean_interval
from openmaia.evaluation.analysis.comparison import compare_runs
from openmaia.evaluation.analysis.significance import supported_shares
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts
from openmaia.runs.claimed import claim_record
from openmaia.runs.run import Run

CONFIG = "configs/demo.yaml"
WIDTHS = {"stage2": 64, "stage3": 112, "stage4": 160}
TUNED = 20
"""The first units of each layer, with which the agent was tuned."""
SEEN = {"stage3": {23, 26, 31}, "stage4": {41, 44, 47}}
"""Further units that its developer had looked at."""
EACH = 40
MEASURED_BEFORE = 20
"""The first of them were measured with earlier agents, too."""
AGENT, PLAIN, UNTRAINED = "agent", "plain search", "untrained"
RUNS: Mapping[str, tuple[str, ...]] = {
    AGENT: (),
    UNTRAINED: ("target.weights=untrained", "exemplars.dataset=scenes-untrained"),
    PLAIN: ("backbone.search=plain",),
}
SHOWN = 0.5
"""Share of a unit's top exemplars that show the description, from which on they are said to show it."""
RETEST = 101
CSV = Path(__file__).with_name("hidden.csv")


def measure(smoke: bool) -> dict[str, Any]:
    runs = {name: investigated(name, smoke) for name in RUNS}
    again = tested_again(runs[AGENT], smoke)
    methods = [(run, name) for name, run in runs.items()]
    figures = {
        "units": sum(len(each) for each in units(smoke).values()),
        "runs": {name: summarised(run) for run, name in methods},
        "fresh": {name: shares(run, fresh(smoke)) for run, name in methods},
        "differences": {
            f"{pair.one} minus {pair.other}": {
                each.measure: [*rounded(each.difference), each.units]
                for each in pair.differences
                if each.measure in ("auc", "auc_all", "auc_minus_other")
            }
            for pair in compare_runs([(runs[AGENT], AGENT), (runs[PLAIN], PLAIN)], RESAMPLES)
        },
        "shares": {name: share_difference(runs[AGENT], runs[name]) for name in (PLAIN, UNTRAINED)},
        "retest": retest(runs[AGENT], again),
    }
    if not smoke:
        write_units(runs)
    return figures


def units(smoke: bool) -> dict[str, list[int]]:
    """Returns the units of each layer."""
    return {layer: sorted(_ordered(layer)[: 2 if smoke else EACH]) for layer in WIDTHS}


def fresh(smoke: bool) -> set[tuple[str, int]]:
    """Returns the layer and index of the units that were not measured with earlier agents."""
    return {
        (layer, index)
        for layer in WIDTHS
        for index in (_ordered(layer)[1:2] if smoke else _ordered(layer)[MEASURED_BEFORE:EACH])
    }


def _ordered(layer: str) -> list[int]:
    possible = {*range(TUNED, WIDTHS[layer])} - SEEN.get(layer, set())
    return sorted(possible, key=lambda index: _rank(layer, index))


def _rank(layer: str, index: int) -> str:
    return hashlib.sha256(f"hidden {layer} {index}".encode()).hexdigest()


def folder() -> Path:
    return setting.CACHE / "world" / "runs"


def study(kind: str, config: str, name: str, network: str, *overrides: str) -> None:
    """Conducts `openmaia study KIND` of a packaged network, or continues it."""
    command(
        "study", kind, config, f"name={name}", f"target.name={network}",
        f"target.network=openmaia.offline.networks:{network}", f"paths.runs={folder()}", f"paths.cache={setting.CACHE}",
        *overrides,
    )  # fmt: skip


def investigated(name: str, smoke: bool) -> Run:
    """Runs the investigations with their tests, or continues them."""
    directory = f"hidden-{EACH}-{name.replace(', ', '-').replace(' ', '-')}{'-few' if smoke else ''}"
    chosen = ":".join(f"{layer}={','.join(map(str, indices))}" for layer, indices in units(smoke).items())
    command(
        "run", CONFIG, f"name={directory}", f"paths.runs={folder()}", f"paths.cache={setting.CACHE}",
        f"units={chosen}", *RUNS[name],
    )  # fmt: skip
    return Run.open(str(folder() / directory))


def tested_again(run: Run, smoke: bool) -> Run:
    """Tests the descriptions of a run with the images of another seed."""
    settings = load(
        [CONFIG, f"name=hidden-again{'-few' if smoke else ''}", f"paths.runs={folder()}", f"paths.cache={setting.CACHE}",
         f"seed={RETEST}"]
    )  # fmt: skip
    other = Run.create(settings)
    done = {each.unit for each in other.done()}
    described = [each for each in run.records(sorted(run.done())) if each.labels]
    for each in described:
        if each.unit not in done:
            other.publish(claim_record(other, each.unit, AGENT, each.description, each.labels))
    other.set_plan(sorted(each.unit for each in described), 1)
    command("evaluate", str(other.files.root))
    return other


def verdicts(run: Run) -> dict[Unit, UnitVerdict]:
    return {each.unit: verdict for each, verdict in run_verdicts(run).items()}


def is_supported(verdict: UnitVerdict) -> bool:
    return verdict.verdict is Verdict.SUPPORTED


def summarised(run: Run) -> dict[str, Any]:
    """Returns the shares of units whose description is supported, and is shown by the unit's exemplars as well, with the mean
    AUCs."""
    found, measures = verdicts(run), run_scores(run, RESAMPLES).measures
    return {
        "verdicts": {each.value: sum(v.verdict is each for v in found.values()) for each in Verdict},
        **shares(run, {_key(unit) for unit in found}),
        "by_layer": {
            layer: sum(is_supported(verdict) for unit, verdict in found.items() if unit.layer == layer)
            for layer in WIDTHS
        },
        "wrong": {name: [round(each, 4) for each in share] for name, share in supported_shares(run).items()},
        **{name: rounded(measures[name]) for name in ("auc", "auc_other", "auc_minus_other", "auc_words", "auc_all")},
    }  # fmt: skip


def shares(run: Run, among: set[tuple[str, int]]) -> dict[str, Any]:
    """Returns of units with these layers and indices the share that is supported, and the share that exemplars show as well."""
    found, scores = verdicts(run), scores_of(run)
    own = [(verdict, scores.get(unit, {})) for unit, verdict in found.items() if _key(unit) in among]
    return {
        "supported": proportion([is_supported(verdict) for verdict, _ in own]),
        "supported_and_shown": proportion([is_supported(verdict) and is_shown(each) for verdict, each in own]),
    }


def scores_of(run: Run) -> dict[Unit, Mapping[str, Any]]:
    return {each.unit: scores for each, scores in run.scores().items()}


def is_shown(scores: Mapping[str, Any]) -> bool:
    share = scores.get("in_exemplars")
    return share is not None and share >= SHOWN


def share_difference(run: Run, other: Run) -> dict[str, Any]:
    """Returns the difference of two runs' shares of supported units, and of those that exemplars show as well, with its
    interval over units."""
    sides = [(verdicts(each), scores_of(each)) for each in (run, other)]
    common = sorted(_key(unit) for unit in sides[0][0])
    named = [
        {_key(unit): (verdict, scores.get(unit, {})) for unit, verdict in found.items()} for found, scores in sides
    ]

    def difference(holds: Any) -> list[float | None]:
        return rounded(mean_interval([holds(*named[0][key]) - holds(*named[1][key]) for key in common], RESAMPLES))

    return {
        "supported": difference(lambda verdict, _: float(is_supported(verdict))),
        "supported_and_shown": difference(lambda verdict, scores: float(is_supported(verdict) and is_shown(scores))),
    }


def _key(unit: Unit) -> tuple[str, int]:
    # The same unit of the trained and of the untrained network.
    return unit.layer, unit.index


def retest(run: Run, again: Run) -> dict[str, Any]:
    """Returns how many descriptions have the same verdict with other images, and how many of those that are supported are so
    again."""
    first, second = verdicts(run), verdicts(again)
    pairs = [(first[unit].verdict, verdict.verdict) for unit, verdict in second.items()]
    return {
        "descriptions": len(pairs),
        "same": proportion([one is other for one, other in pairs]),
        "supported_again": proportion([other is Verdict.SUPPORTED for one, other in pairs if one is Verdict.SUPPORTED]),
    }


def write_units(runs: Mapping[str, Run]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("run layer unit verdict p q auc auc_other in_exemplars worst_control labels".split())
        for name, run in runs.items():
            scores = scores_of(run)
            for investigation, verdict in sorted(run_verdicts(run).items()):
                own = scores.get(investigation.unit, {})
                numbers = (verdict.p, verdict.q, *(own.get(key) for key in ("auc", "auc_other", "in_exemplars")))
                labels = (run.summary(investigation) or {}).get("labels") or ()
                table.writerow([
                    name, investigation.unit.layer, investigation.unit.index, verdict.verdict.value,
                    *("" if value is None else f"{value:.4g}" for value in numbers),
                    verdict.worst.name if verdict.worst else "", "; ".join(labels),
                ])  # fmt: skip
