"""Does a metric fall when half of the true labels are missing, and when as many wrong ones are added?

The two tests of Oikarinen, Yan and Weng (2025, "Evaluating Neuron Explanations: A Unified Framework with Sanity Checks"),
run on our metrics over units of known truth. There they are run on marks of pictures; here on labels of a description,
which is what our metrics take. A metric passes where it falls for at least PASS of the units.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from openmaia.evaluate.claims import Claim
from openmaia.evaluate.protocol import Design, Instruments, evaluate_claims
from openmaia.evaluate.scores import flat
from openmaia.units import Unit

PASS = 0.9

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "difference", "z_difference", "d", "mad", "top1", "top5",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou",
)  # fmt: skip

TESTS = ("missing_label", "extra_label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A unit, what it responds to, and as many labels that it does not respond to."""

    unit: Unit
    truth: tuple[str, ...]
    wrong: tuple[str, ...]


Verdicts = dict[str, dict[str, bool]]
"""metric -> test -> whether it passes."""


def sanity(units: Sequence[Known], instruments: Instruments, design: Design) -> Verdicts:
    """Units of one label have no half to miss and take part in the other test alone. A metric that is undefined for a
    changed description has not fallen. Raises ValueError where no unit has two labels."""
    several = [one for one in units if len(one.truth) > 1]
    if not several:
        raise ValueError("the missing-label test needs units with at least two true labels")
    whole = _scores([_claim(one.unit, one.truth) for one in units], instruments, design)
    missing = _scores(
        [_claim(one.unit, one.truth[: (len(one.truth) + 1) // 2]) for one in several], instruments, design
    )
    extra = _scores([_claim(one.unit, one.truth + one.wrong) for one in units], instruments, design)
    return {
        metric: {"missing_label": _falls(metric, whole, missing), "extra_label": _falls(metric, whole, extra)}
        for metric in METRICS
    }


def _claim(unit: Unit, labels: tuple[str, ...]) -> Claim:
    return Claim(unit=unit, labels=labels, description="; ".join(labels))


Scores = Mapping[Unit, Mapping[str, float | None]]


def _scores(claims: Sequence[Claim], instruments: Instruments, design: Design) -> Scores:
    # The same number of images per label, so that a description is not the worse for having more of them.
    found = evaluate_claims(claims, instruments, replace(design, n=design.n))
    return {one.trial.claim.unit: flat(one.scores) for one in found}


def _falls(metric: str, whole: Scores, changed: Scores) -> bool:
    pairs = [(whole[unit].get(metric), scores.get(metric)) for unit, scores in changed.items()]
    fallen = [before is not None and after is not None and after < before - 1e-9 for before, after in pairs]
    return sum(fallen) >= PASS * len(fallen)


@cache
def measured() -> Verdicts:
    """As they stand in sanity.json (`make science only=sanity` measures them again)."""
    return json.loads((files("openmaia.evaluate") / "sanity.json").read_text())


ALIKE = {"auc_minus_other": "auc"}
"""The images of other units stay what they are when a label is left out, so that the difference falls where the AUC does."""

NAMES = {
    "auc": "AUC",
    "auc_minus_other": "the paired difference of AUCs",
    "auc_worst": "AUC of the worst label",
    "auc_unrelated": "AUC against unrelated prompts",
    "auc_random": "AUC against photographs",
    "difference": "positive minus neutral activation",
    "z_difference": "mean difference in deviations",
    "d": "Cohen's d",
    "mad": "MAD as CoSy",
    "top1": "highest of its layer",
    "top5": "among the five highest",
    "detection_auprc": "detection: AUPRC",
    "detection_f1": "detection: F1",
    "detection_correlation": "detection: correlation",
    "detection_iou": "detection: graded IoU",
}


def warning(metric: str) -> str:
    """What is to be said wherever a metric is shown: "" where it passes both tests or was not put to them."""
    name = ALIKE.get(metric, metric if metric in METRICS else metric.removeprefix("z_"))
    failed = [test.replace("_", " ") for test, passes in measured().get(name, {}).items() if not passes]
    return f"blind to {' and '.join(failed)}s" if failed else ""


def notes(metrics: Sequence[str]) -> list[str]:
    """For a line below several of them: what each that fails is called, and what it does not notice."""
    return [f"{NAMES[name]} is {said}" for name in metrics if (said := warning(name))]
