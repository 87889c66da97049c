"""Rounds on units over scene graphs: what the agent `searcher` answers if an answer that fails its test goes back 0, 1 or 3 times.

    python -m measure.agents.rounds HALF SEED COUNT [SECONDS]

HALF is `tuning` or `held_out`, COUNT the largest number of units of each of the five layers. A run that is stopped, or ends
after SECONDS, goes on where it was. Only when all units are done, rounds-HALF.csv is written, with a row for each unit, and the
figures are printed. The units of `held_out` are measured once: `held_out 29 40` are 200 units of another seed than those of
`openmaia benchmark`.

One run with three rounds has the answers after 0 and 1 round, too: up to its first test, an investigation with rounds is that
without. No description is tested: what the units respond to is known.
"""

import csv
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from measure.measuring import machine
from measure.science import setting
from openmaia.agent.loop import investigate_and_publish
from openmaia.agent.metering import metered
from openmaia.agent.tasks.task import load as load_task
from openmaia.analysis.rounds import list_rounds
from openmaia.assembly import exemplars, investigations, targets
from openmaia.assembly.evaluation import comparison
from openmaia.assembly.generators import generator
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.selection import select
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.truth import match_truth
from openmaia.runs.records import Record
from openmaia.runs.run import Run

ROUNDS = (0, 1, 3)
LAYERS = ("one", "pair", "or", "and", "andnot")
KEPT = 12_000
"""Drawn images in memory: most are the same for all units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an investigation answered after so many rounds."""

    record: Record
    truth: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    """For each of ROUNDS."""
    exact: tuple[bool, ...]

    @property
    def images(self) -> int:
        """Images that it drew and edited."""
        return sum(self.record.spent[role].requests for role in ("generator", "editor") if role in self.record.spent)


def main() -> None:
    half, seed, count, *seconds = sys.argv[1:]
    settings = configured(half, int(seed), int(count))
    run = investigated(settings, float(*seconds) if seconds else float("inf"))
    if left := len(run.pending()):
        print(f"{left} units are left; run the same command again")
        return
    found = outcomes(settings, run)
    write(found, Path(__file__).with_name(f"rounds-{half}.csv"))
    print(json.dumps(summed(found) | {"machine": machine(), "date": date.today().isoformat()}, indent=1))


def configured(half: str, seed: int, count: int) -> Config:
    folder = setting.CACHE / "agents"
    return load([
        "scene-graphs", "searcher", f"name=rounds-{half}-{seed}-{count}", f"target.half={half}", f"target.seed={seed}",
        f"target.count={count}", f"exemplars.dataset=scenes-{half}-{seed}-{count}", f"paths.runs={folder / 'runs'}",
        f"paths.exemplars={folder / 'exemplars'}", f"task.evidence.rounds={max(ROUNDS)}",
        # Enough for three rounds of experiments and an answer.
        "limits.soft_turns=24", "limits.turns=28",
    ])  # fmt: skip


def investigated(settings: Config, seconds: float) -> Run:
    """Conducts the investigations that are pending, until so many seconds have passed."""
    began, target, run = time.monotonic(), targets.target(settings), Run.create(settings)
    run.set_plan(select(settings.units, target.info()).units, 1)
    services = investigations.services(settings, exemplars.make(settings, list(LAYERS)), measured=target)
    drawn = setting.Remembering(generator(settings), KEPT)
    services = replace(services, generator=metered(drawn, "generator", services.ledger, 0))
    task, options = load_task(settings.task.name), investigations.options(settings)
    for investigation in run.pending():
        if time.monotonic() - began > seconds:
            break
        result = investigate_and_publish(investigation, task, services, options, run)
        assert result.summary is not None, result.cause
        print(result.investigation.unit, file=sys.stderr)
    return run


def outcomes(settings: Config, run: Run) -> list[Outcome]:
    similarities, truths = comparison(settings, None, targets.target(settings).info())
    records = list(run.records())
    said = [[answer_after(record, count) for record in records] for count in ROUNDS]
    matches = [
        match_truth(
            [Claim(unit=record.unit, labels=labels) for record, labels in zip(records, each, strict=True)],
            truths,
            similarities[:1],
        )
        for each in said
    ]
    return [
        Outcome(
            record=record, truth=tuple(truths[record.unit]), labels=labels, exact=tuple(each.exact for each in exact)
        )
        for record, labels, exact in zip(records, zip(*said, strict=True), zip(*matches, strict=True), strict=True)
    ]


def answer_after(record: Record, count: int) -> tuple[str, ...]:
    """Returns the labels that would have stood with so many rounds: of the first answer that no round was left for."""
    rounds = list_rounds(record)
    return rounds[count].test.labels if count < len(rounds) else record.labels


def summed(found: list[Outcome]) -> dict[str, Any]:
    rounds = [each for one in found for each in list_rounds(one.record)]
    figures: dict[str, Any] = {
        f"rounds {count}": {
            "exact": proportion([each.exact[place] for each in found]),
            "wrong": proportion([bool(each.labels[place]) and not each.exact[place] for each in found]),
            "none": proportion([not each.labels[place] for each in found]),
        }
        for place, count in enumerate(ROUNDS)
    }
    first = [each for each in found if list_rounds(each.record)]
    return figures | {
        "units": len(found),
        "sent back": len(first),
        "of them exact before": sum(each.exact[0] for each in first),
        "then": dict(Counter(each.change.value for each in rounds)),
        "images": round(fmean(each.images for each in found), 1),
    }


def write(found: list[Outcome], path: Path) -> None:
    with path.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(
            ["layer", "unit", "truth", *(f"{what}_{n}" for n in ROUNDS for what in ("exact", "labels")), "images"]
        )
        for each in found:
            answers = [
                part
                for ok, labels in zip(each.exact, each.labels, strict=True)
                for part in (int(ok), "; ".join(labels))
            ]
            table.writerow(
                [each.record.unit.layer, each.record.unit.index, "; ".join(each.truth), *answers, each.images]
            )


if __name__ == "__main__":
    main()
