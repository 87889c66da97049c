"""Results of two sanity tests of the metrics, and the caveats that follow from them.

`missing_label` removes half of the true labels of a unit; `extra_label` adds as many wrong ones. A metric passes if its
value then falls (Oikarinen, Yan and Weng 2025, "Evaluating Neuron Explanations: A Unified Framework with Sanity
Checks"). `make science only=sanity` runs the tests.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "mad", "clarity", "difference", "z_difference", "d", "top1", "top5",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou", "detection_responsiveness", "detection_purity",
    "detection_balanced_accuracy", "detection_fuzzing",
)  # fmt: skip

TESTS = ("missing_label", "extra_label")


SanityResults = dict[str, dict[str, bool]]
"""For each of METRICS and each of TESTS, whether the metric passes."""


@cache
def measured_results() -> SanityResults:
    """Reads which metric passes which test."""
    return stored()["results"]


def stored() -> dict[str, Any]:
    """Returns the content of sanity.json, which `make science only=sanity` writes.

    `results`: for each metric and test, whether the metric passes. `shares`: the share of units for which its value
    fell. `pass`: the share from which a metric passes. `units`: the number of units. `stamp`: a hash of the code of the
    metrics.
    """
    return json.loads((files("openmaia.evaluation.analysis") / "sanity.json").read_text())


_SAME_AS = {"auc_all": "auc", "auc_minus_other": "auc", "auc_minus_other_all": "auc"}
"""For a metric that was not tested, the metric whose results hold for it. The AUC on images of other units does not
change with the labels of a unit, so the difference falls exactly if the AUC falls."""

NAMES = {
    "auc": "AUC",
    "auc_minus_other": "the paired difference of AUCs",
    "auc_worst": "AUC of the worst label",
    "auc_unrelated": "AUC against unrelated prompts",
    "auc_random": "AUC against photographs",
    "difference": "positive minus neutral activation",
    "z_difference": "mean difference in deviations",
    "d": "Cohen's d",
    "mad": "CoSy's MAD",
    "clarity": "FADE's clarity",
    "top1": "highest of its layer",
    "top5": "among the five highest",
    "detection_auprc": "detection: AUPRC",
    "detection_f1": "detection: F1",
    "detection_correlation": "detection: correlation",
    "detection_iou": "detection: graded IoU",
    "detection_responsiveness": "FADE's responsiveness",
    "detection_purity": "FADE's purity",
    "detection_balanced_accuracy": "detection: balanced accuracy",
    "detection_fuzzing": "fuzzing: balanced accuracy",
}


def warning(metric: str) -> str:
    """Returns the caveat of a metric, such as "blind to missing labels"; empty if it passes both tests or is none of
    METRICS. A name with the prefix `z_` stands for the metric without it.
    """
    name = _SAME_AS.get(metric, metric if metric in METRICS else metric.removeprefix("z_"))
    if name in METRICS and name not in measured_results():
        return "not put to the sanity tests"
    failed = [test.replace("_", " ") for test, passes in measured_results().get(name, {}).items() if not passes]
    return f"blind to {' and '.join(failed)}s" if failed else ""


def notes(metrics: Sequence[str]) -> list[str]:
    """Returns a footnote for each metric that failed a test, or was not tested."""
    return [f"{NAMES[name]} is {caveat}" for name in metrics if (caveat := warning(name))]
