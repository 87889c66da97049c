"""The scripted experimenter on units of known truth, held out from whatever it was tuned on, beside controls."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

from measure.measuring import machine, shown
from measure.science import sections, setting, truth
from measure.science.baselines import BASELINES
from measure.science.investigated import Answer, Job, investigated, means
from openmaia.core.units import Unit
from openmaia.offline.closed_form.concepts import Sort
from openmaia.offline.closed_form.family import layers

CONFIG = "closed-form"
FAMILY = "held_out"
SECTION = "Units of known truth"
CSV = Path(__file__).with_name("ground_truth.csv")
SHUFFLED = 8
"""Units of each mode whose answers are shuffled."""
OWN = "scripted experimenter"
CONTROL = "answers shuffled"
OBJECTS = "with an object"

Labels = Mapping[Unit, Sequence[str]]


def measure(smoke: bool) -> dict[str, Any]:
    """Returns the rates of each method: over all units, by mode, and by mode over the units with an object.

    Methods are the experimenter, the same on units whose activations are those of unrelated images, and each baseline with the mean
    number of images that the experimenter was shown.
    """
    wanted = units(FAMILY, 1 if smoke else None)
    straight, crossed = overrides(FAMILY, smoke), overrides(FAMILY, smoke, shuffled=True)
    found = answers(straight, wanted)
    budget = round(mean(one.images for one in found))
    shuffled = answers(crossed, units(FAMILY, 1 if smoke else SHUFFLED))
    named = ("exhaustive search",) if smoke else tuple(BASELINES)
    jobs = [BaselineJob(overrides=straight, unit=unit, names=named, budget=budget) for unit in wanted]
    said = setting.shared_out(labelled, jobs)
    labels: dict[str, Labels] = {
        OWN: {one.unit: one.labels for one in found},
        CONTROL: {one.unit: one.labels for one in shuffled},
        **{name: {job.unit: given[name] for job, given in zip(jobs, said, strict=True)} for name in named},
    }
    matches = {name: matched(FAMILY, given) for name, given in labels.items()}
    figures = {
        "methods": {name: summarised(FAMILY, found) for name, found in matches.items()},
        "images": budget,
        "cpu_s_per_unit": round(mean(one.seconds for one in found), 2),
    }
    if not smoke:
        write_units(labels, matches)
        sections.write(SECTION, section(figures))
    return figures


def overrides(family: str, smoke: bool, shuffled: bool = False) -> tuple[str, ...]:
    return (
        *setting.few(smoke),
        f"target.family={family}",
        f"target.name=closed_form_{family}",
        f"target.shuffled={str(shuffled).lower()}",
        f"exemplars.dataset={'shuffled' if shuffled else 'straight'}{'-few' if smoke else ''}",
    )


def units(family: str, per_mode: int | None = None) -> list[Unit]:
    """Spread over a mode's units, so that a part of them has its third outside the vocabulary, too."""
    found: list[Unit] = []
    for mode, forms in layers(family).items():
        step = 1 if per_mode is None else max(len(forms) // per_mode, 1)
        chosen = range(0, len(forms), step)[:per_mode]
        found += [Unit(target=f"closed_form_{family}", layer=mode, index=index) for index in chosen]
    return found


def answers(given: tuple[str, ...], wanted: Sequence[Unit]) -> list[Answer]:
    setting.ready(setting.config(CONFIG, given), list(dict.fromkeys(unit.layer for unit in wanted)))
    return setting.shared_out(investigated, [Job(config=CONFIG, overrides=given, unit=unit) for unit in wanted])


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineJob:
    overrides: tuple[str, ...]
    unit: Unit
    names: tuple[str, ...]
    budget: int


def labelled(job: BaselineJob) -> dict[str, tuple[str, ...]]:
    own = means(CONFIG, job.overrides)
    return {name: BASELINES[name](job.unit, own, job.budget).labels for name in job.names}


def matched(family: str, labels: Labels) -> dict[Unit, truth.TruthMatch]:
    """Compares the labels of each unit with its truth."""
    forms = layers(family)
    among = truth.candidates(form.truth for group in forms.values() for form in group)
    return {unit: truth.match(said, forms[unit.layer][unit.index].truth, among) for unit, said in labels.items()}


def summarised(family: str, found: Mapping[Unit, truth.TruthMatch]) -> dict[str, Any]:
    """Returns the rates over all units, by mode, and by mode over the units with an object among their concepts."""
    groups = {
        "all": list(found.values()),
        **{mode: [match for unit, match in found.items() if unit.layer == mode] for mode in layers(family)},
        **{
            f"{mode}, {OBJECTS}": [m for unit, m in found.items() if unit.layer == mode and has_object(family, unit)]
            for mode in layers(family)
        },
    }
    return {name: truth.rates(group) for name, group in groups.items() if group}


def has_object(family: str, unit: Unit) -> bool:
    form = layers(family)[unit.layer][unit.index]
    return any(concept.sort is Sort.THING for slot in form.slots for concept in slot.concepts)


def write_units(labels: Mapping[str, Labels], matches: Mapping[str, Mapping[Unit, truth.TruthMatch]]) -> None:
    forms = layers(FAMILY)
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("method mode unit truth inside labels hits exact".split())
        for method, found in matches.items():
            for unit, match in found.items():
                slots = forms[unit.layer][unit.index].truth
                table.writerow([
                    method, unit.layer, unit.index, " or ".join(" and ".join(slot) for slot in slots), int(match.inside),
                    "; ".join(labels[method][unit]), match.hits, int(match.exact),
                ])  # fmt: skip


def section(figures: Mapping[str, Any]) -> str:
    methods = figures["methods"]
    own = methods[OWN]
    parts = len(own) - 1
    exhaustive = methods["exhaustive search"]
    by_mode = ", ".join(f"`{mode}` {shown(exhaustive[mode]['exact'], '.2f')}" for mode in layers(FAMILY))
    return f"""{own["all"]["units"]} closed-form units that were held out from everything the experimenter was tuned on, measured once, by
`make science only=ground_truth`: {machine()}, {date.today().isoformat()}. Half of them respond to an object. Their colours are
defined by a survey, not by the ranges of hue of the development units, and the truth about objects comes from another network
than the experimenter's eyes. 106 of them have a truth that also was that of a unit of the family before, which was measured on
2026-11-21, with other parameters and other detectors of colours. A third is outside of the experimenter's vocabulary, where to
abstain is the right answer. *exact*: every slot of the truth named and nothing else (outside: abstained). Each baseline got as
many images per unit as the experimenter was shown ({figures["images"]}). ground_truth.csv has each unit and method.

| | units | exact | exact, inside | abstained, outside | precision | recall |
|---|---|---|---|---|---|---|
{chr(10).join(rows(methods))}

The first {parts} rows are parts of the units, described by the scripted experimenter. Exact share of exhaustive search by mode:
{by_mode}.

With shuffled answers the unit responds to an unrelated image in the place of each image, so that no label is true; the exact
share there are abstentions.
"""


def rows(methods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the rows of the table: those of parts of the units, described by the experimenter, and those of all methods."""
    own = methods[OWN]
    names = [name for mode in layers(FAMILY) for name in (mode, f"{mode}, {OBJECTS}")]
    shown = [_row(name, own[name]) for name in names if name in own]
    return shown + [_row(name, each["all"]) for name, each in methods.items()]


def _row(name: str, rates: Mapping[str, Any]) -> str:
    names = ("exact", "exact_inside", "abstained_outside", "precision", "recall")
    return f"| {name} | {rates['units']} | {' | '.join(shown(rates[each], '.2f') for each in names)} |"
