"""Writes RESULTS.md beside this file from the figures of a run."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "RESULTS.md"

GROUPS = {
    "single": "one context, inside the experimenter's vocabulary",
    "interaction": "two contexts, of which each alone has a third of the effect",
    "outside": "a context that the vocabulary has no word for",
}


def write(figures: Mapping[str, Any], machine: str) -> None:
    """Writes the page; `figures` are those of the part `bias` with took_s."""
    OUT.write_text(page(figures, machine))


def page(figures: Mapping[str, Any], machine: str) -> str:
    """Returns the page."""
    power: Mapping[str, Sequence[float]] = figures["power"]
    strengths = sorted({float(name.split()[1]) for name in power})
    rows = [
        f"| {what} | " + " | ".join(_percent(power.get(f"{kind} {strength:g}")) for strength in strengths) + " |"
        for kind, what in GROUPS.items()
    ]
    return f"""# Known effects and what the applications find

## Biases

`make applications only=bias`, {date.today().isoformat()}, {machine}, CPU; it took {figures["took_s"] / 60:.0f} minutes.

{figures["planted"]} classifiers with a planted bias and {figures["nulls"]} without (`openmaia/offline/closed_form/classes.py`),
all over the evidence of EfficientNet-Lite1 on collages. The agent is the scripted experimenter, no language model. It made
{figures["claims"]} claims, {figures["claims_true"]} of them true, and claimed something about
{figures["nulls_with_a_claim"]} of the classifiers without a bias. Each claim was tested on 40 matched pairs of the test split;
the collage confirms the class. Intervals are 95 %.

| | |
|---|---|
| claims supported | {figures["supported"]} |
| of them false: the planted bias adds nothing to the tested images | {_percent(figures["false_discoveries"])} |
| classifiers without a bias in which one was supported | {_percent(figures["nulls_with_a_discovery"])} |
| area under the ROC, size that the agent claims | {_plain(figures["roc_auc"]["claimed"])} |
| area under the ROC, effect that the test confirms | {_plain(figures["roc_auc"]["confirmed"])} |
| processor time per classifier: agent, test | {figures["cpu_s_per_unit"][0]} s, {figures["cpu_s_per_unit"][1]} s |

Power, the share of planted biases that are claimed and supported, by strength in log-odds:

| | {" | ".join(f"{strength:g}" for strength in strengths)} |
|---|{"---|" * len(strengths)}
{chr(10).join(rows)}

ROC, (share of classifiers without a bias, share of those with one) from the highest threshold to the lowest:

- size claimed: {_points(figures["roc"]["claimed"])}
- effect confirmed: {_points(figures["roc"]["confirmed"])}

Every classifier, its claims and their effects are in `bias.json`.
"""


def _percent(share: Sequence[float] | None) -> str:
    return "" if share is None else f"{share[0]:.0%} ({share[1]:.0%} to {share[2]:.0%})"


def _plain(area: Sequence[float] | None) -> str:
    return "" if area is None else f"{area[0]:.2f} ({area[1]:.2f} to {area[2]:.2f})"


def _points(curve: Sequence[Sequence[float]]) -> str:
    return ", ".join(f"({x:.2f}, {y:.2f})" for x, y in curve)
