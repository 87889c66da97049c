"""The scripted experimenter on units of known truth, held out from whatever it was tuned on, beside controls."""

from collections.abc import Sequence
from typing import Any

from openmaia.evaluate import truth
from openmaia.targets.closed_form import layers
from openmaia.units import Unit
from tests.science import setting
from tests.science.investigated import Answer, Job, investigated

CONFIG = "closed-form"


def overrides(family: str, shuffled: bool = False) -> tuple[str, ...]:
    return (
        f"target.family={family}",
        f"target.name=closed_form_{family}",
        f"target.shuffled={str(shuffled).lower()}",
        f"exemplars.dataset={'shuffled' if shuffled else 'packages'}",
    )


def units(family: str, per_mode: int | None = None) -> list[Unit]:
    """Spread over a mode's units, so that a part of them has its third outside the vocabulary, too."""
    found: list[Unit] = []
    for mode, forms in layers(family).items():
        step = 1 if per_mode is None else max(len(forms) // per_mode, 1)
        chosen = range(0, len(forms), step)[:per_mode]
        found += [Unit(target=f"closed_form_{family}", layer=mode, index=index) for index in chosen]
    return found


def answers(family: str, wanted: Sequence[Unit], shuffled: bool = False) -> list[Answer]:
    given = overrides(family, shuffled)
    setting.ready(setting.config(CONFIG, given), list(layers(family)))
    return setting.shared_out(investigated, [Job(config=CONFIG, overrides=given, unit=unit) for unit in wanted])


def scored(family: str, found: Sequence[Answer]) -> dict[str, list[truth.Score]]:
    """By mode."""
    forms = layers(family)
    among = truth.candidates(form.truth for group in forms.values() for form in group)
    scores: dict[str, list[truth.Score]] = {mode: [] for mode in forms}
    for one in found:
        form = forms[one.unit.layer][one.unit.index]
        scores[one.unit.layer].append(truth.score(one.labels, form.truth, among))
    return scores


def figures(family: str, found: Sequence[Answer]) -> dict[str, Any]:
    return {mode: truth.figures(scores) for mode, scores in scored(family, found).items() if scores}
