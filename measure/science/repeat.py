"""The experimenter's descriptions of the part `real`, as real.csv holds them, tested twice: with two seeds, so that prompts,
images and photographs are drawn independently. Writes a row per unit, and a section of RESULTS.md.
"""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from measure.measuring import machine, shown
from measure.science import real, sections, setting
from measure.science.real import CONFIG, LAYERS, OWN, command
from openmaia.config.schema import Config
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts
from openmaia.runs.claimed import claim_record
from openmaia.runs.run import Run

CSV = Path(__file__).with_name("repeat.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Twofold:
    """Two tests of the same descriptions."""

    part: str
    """Of the measurement."""
    section: str
    csv: Path
    seeds: tuple[int, int]
    """Of no run that this project has published before."""
    overrides: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The overrides in a sentence."""
        return f" with {' '.join(f'`{each}`' for each in self.overrides)}," if self.overrides else ""


DEFAULT = Twofold(part="repeat", section="The same descriptions with other images", csv=CSV, seeds=(101, 102))


def measure(smoke: bool) -> dict[str, Any]:
    return measure_twice(DEFAULT, smoke)


def measure_twice(tests: Twofold, smoke: bool) -> dict[str, Any]:
    claims = described(3 if smoke else None)
    verdicts: list[dict[Unit, UnitVerdict]] = []
    wrong: list[Mapping[str, tuple[float, float, float]]] = []
    for seed in tests.seeds:
        run = tested(claims, seed, tests.overrides, smoke)
        verdicts.append({each.unit: verdict for each, verdict in run_verdicts(run).items()})
        wrong.append(supported_shares(run))
    units = [
        Twice(unit=unit, labels=labels, one=verdicts[0][unit], other=verdicts[1][unit])
        for unit, labels in claims.items()
    ]
    figures = summarised(units) | {
        name: [[round(value, 4) for value in shares[name]] for shares in wrong if name in shares]
        for name in (SHUFFLED, RANDOM)
    }
    if not smoke:
        write_units(units, tests.csv)
        sections.write(tests.section, section(figures, tests))
    return figures


def described(each: int | None) -> dict[Unit, tuple[str, ...]]:
    """Returns the labels of the units that the experimenter described: all of them, or the first ones of each layer."""
    with real.CSV.open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == OWN and row["labels"]]
    chosen = [row for layer in LAYERS for row in [row for row in rows if row["layer"] == layer][:each]]
    name = setting.config(CONFIG).target.name
    return {
        Unit(target=name, layer=row["layer"], index=int(row["unit"])): tuple(row["labels"].split("; "))
        for row in chosen
    }


def tested(claims: Mapping[Unit, tuple[str, ...]], seed: int, overrides: tuple[str, ...], smoke: bool) -> Run:
    """Tests the descriptions with the images of a seed, or continues the test, and returns the run directory.

    The judge's detection is left out: it changes no verdict.
    """
    settings = setting.config(
        CONFIG,
        (
            f"name=repeat-{seed}{'-few' if smoke else ''}",
            f"paths.runs={setting.CACHE}/science/runs",
            f"seed={seed}",
            "evaluate.detect=0",
            *overrides,
            *(("evaluate.n=5", "evaluate.random_words=4") if smoke else ()),
        ),
    )
    setting.ready(settings, list(LAYERS))
    run = stored(settings, claims, OWN)
    command("evaluate", str(run.files.root))
    return run


def stored(settings: Config, claims: Mapping[Unit, tuple[str, ...]], method: str) -> Run:
    """Returns the run of a config, with the labels that a method gave to units as its descriptions. Those that it has stay."""
    run = Run.create(settings)
    done = {each.unit for each in run.done()}
    for unit, labels in claims.items():
        if unit not in done:
            run.publish(claim_record(run, unit, method, "; ".join(labels), labels))
    run.set_plan(sorted(claims), 1)
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """The verdicts of one description with two sets of images."""

    unit: Unit
    labels: tuple[str, ...]
    one: UnitVerdict
    other: UnitVerdict

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        return self.one.verdict, self.other.verdict


def summarised(units: Sequence[Twice]) -> dict[str, Any]:
    """Returns the shares that are supported, and how often the second set of images says the same as the first.

    Each unit counts twice in what depends on an order of the sets: once in each.
    """
    ordered = [pair for each in units for pair in (each.verdicts, each.verdicts[::-1])]
    after = [other for one, other in ordered if one is Verdict.SUPPORTED]
    used = [images(verdict) for each in units for verdict in (each.one, each.other)]
    return {
        "units": len(units),
        "supported": [proportion([each.verdicts[n] is Verdict.SUPPORTED for each in units]) for n in (0, 1)],
        "supported_again": proportion([verdict is Verdict.SUPPORTED for verdict in after]),
        "contradicted": proportion([{*each.verdicts} == {Verdict.SUPPORTED, Verdict.NOT_SUPPORTED} for each in units]),
        "same": proportion([len({*each.verdicts}) == 1 for each in units]),
        "transitions": {
            f"{one}, {other}": count for (one, other), count in sorted(Counter(each.verdicts for each in units).items())
        },
        "images": {"median": median(used), "total": sum(used)},
    }


def images(verdict: UnitVerdict) -> int:
    """Returns the number of positive images on which a description was tested."""
    return max((control.positive for control in verdict.controls), default=0)


def write_units(units: Sequence[Twice], to: Path) -> None:
    with to.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("layer unit images verdict p q worst_low images_2 verdict_2 p_2 q_2 worst_low_2 labels".split())
        for each in units:
            table.writerow([
                each.unit.layer, each.unit.index, *cells(each.one), *cells(each.other), "; ".join(each.labels),
            ])  # fmt: skip


def cells(verdict: UnitVerdict) -> tuple[str | int, ...]:
    numbers = (verdict.p, verdict.q, verdict.worst.low if verdict.worst else None)
    return (
        images(verdict),
        verdict.verdict.value,
        *("" if value is None else f"{value:.4g}" for value in numbers),
    )


def section(figures: Mapping[str, Any], tests: Twofold) -> str:
    first, second = figures["supported"]
    rows = "\n".join(f"| {pair.replace(', ', ' | ')} | {count} |" for pair, count in figures["transitions"].items())
    false = [
        f"{words} {' and '.join(shown(share, '.1%') for share in figures[name])}"
        for name, words in ((SHUFFLED, "of descriptions given to other units"), (RANDOM, "of random words"))
    ]
    return f"""The {figures["units"]} descriptions of the scripted experimenter in real.csv (EfficientNet-Lite0, three layers) were tested twice,{tests.words}
with the seeds {tests.seeds[0]} and {tests.seeds[1]}, by `make science only={tests.part}`: {machine()}, {date.today().isoformat()}. Prompts, images and photographs are
drawn anew for each seed; both draw from the same photographs of the test half. Each unit is in {tests.csv.name}.

Supported: {shown(first, ".1%")} with the first set of images, {shown(second, ".1%")} with the second. Of those that one set supports, the other
supports {shown(figures["supported_again"], ".1%")}. Of all descriptions, {shown(figures["contradicted"], ".1%")} are supported by one set and not
supported by the other, and {shown(figures["same"], ".1%")} have the same verdict twice. Of wrong descriptions, these shares are supported:
{"; ".join(false)}. The median number of images of a description is {figures["images"]["median"]:g} in a set,
and as many neutral ones.

| first set | second set | descriptions |
|---|---|---|
{rows}
"""
