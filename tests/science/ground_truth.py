"""The scripted experimenter on units of known truth, held out from whatever it was tuned on, beside controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from openmaia.core.units import Unit
from openmaia.offline.closed_form import layers
from tests.science import setting, truth
from tests.science.baselines import BASELINES
from tests.science.investigated import Answer, Job, investigated, means

CONFIG = "closed-form"
SHUFFLED = 8
"""Units of each mode whose answers are shuffled."""


def measure(smoke: bool) -> dict[str, Any]:
    """Per mode: exact-set rate, precision, recall. Beside: the same units' answers shuffled, and each baseline with the
    mean number of images that the experimenter was shown."""
    wanted = units("held_out", 1 if smoke else None)
    straight, crossed = overrides("held_out", smoke), overrides("held_out", smoke, shuffled=True)
    found = answers(straight, wanted)
    budget = round(mean(one.images for one in found))
    shuffled = answers(crossed, units("held_out", 1 if smoke else SHUFFLED))
    figures: dict[str, Any] = by_mode("held_out", {one.unit: one.labels for one in found})
    figures["shuffled"] = together("held_out", {one.unit: one.labels for one in shuffled})
    named = ("exhaustive search",) if smoke else tuple(BASELINES)
    jobs = [BaselineJob(overrides=straight, unit=unit, names=named, budget=budget) for unit in wanted]
    said = setting.shared_out(labelled, jobs)
    for name in named:
        labels = {job.unit: labels[name] for job, labels in zip(jobs, said, strict=True)}
        figures[name.removesuffix(" search")] = together("held_out", labels) | by_mode("held_out", labels)
    return figures | {"images": budget, "cpu_s_per_unit": round(mean(one.seconds for one in found), 2)}


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


Labels = Mapping[Unit, Sequence[str]]


def scores(family: str, labels: Labels) -> dict[str, list[truth.TruthMatch]]:
    """By mode."""
    forms = layers(family)
    among = truth.candidates(form.truth for group in forms.values() for form in group)
    found: dict[str, list[truth.TruthMatch]] = {mode: [] for mode in forms}
    for unit, said in labels.items():
        found[unit.layer].append(truth.match(said, forms[unit.layer][unit.index].truth, among))
    return found


def by_mode(family: str, labels: Labels) -> dict[str, Any]:
    return {mode: truth.rates(found) for mode, found in scores(family, labels).items()}


def together(family: str, labels: Labels) -> dict[str, Any]:
    """All modes at once."""
    found = [score for group in scores(family, labels).values() for score in group]
    return truth.rates(found)
