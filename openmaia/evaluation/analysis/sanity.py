"""The results of two sanity tests of our metrics, and the caveats that follow from them.

A metric passes if it falls when half of the true labels are removed, and when as many wrong labels are added
(Oikarinen, Yan and Weng 2025, "Evaluating Neuron Explanations: A Unified Framework with Sanity Checks"). `make science
only=sanity` runs the tests.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

METRICS = (
    "auc", "auc_worst", "auc_unrelated", "auc_random", "difference", "z_difference", "d", "mad", "top1", "top5",
    "detection_auprc", "detection_f1", "detection_correlation", "detection_iou",
)  # fmt: skip

TESTS = ("missing_label", "extra_label")


SanityResults = dict[str, dict[str, bool]]
"""metric -> test -> whether it passes."""


@cache
def measured_results() -> SanityResults:
    """Reads the results in sanity.json, which `make science only=sanity` writes."""
    return stored()["results"]


def stored() -> dict[str, Any]:
    """Reads sanity.json: the results, the share of units for which each metric fell, and the stamp of the code that was judged."""
    return json.loads((files("openmaia.evaluation.analysis") / "sanity.json").read_text())


SAME_AS = {"auc_minus_other": "auc"}
"""The images of other units do not change with the labels of a unit, so the difference falls if the AUC does."""

NAMES = {
    "auc": "AUC",
    "auc_minus_other": "the paired difference of AUCs",
    "auc_worst": "AUC of the worst label",
    "auc_unrelated": "AUC against unrelated prompts",
    "auc_random": "AUC against photographs",
    "difference": "positive minus neutral activation",
    "z_difference": "mean difference in deviations",
    "d": "Cohen's d",
    "mad": "MAD, matched neutral images in the place of CoSy's random ones",
    "top1": "highest of its layer",
    "top5": "among the five highest",
    "detection_auprc": "detection: AUPRC",
    "detection_f1": "detection: F1",
    "detection_correlation": "detection: correlation",
    "detection_iou": "detection: graded IoU",
}


def warning(metric: str) -> str:
    """Returns the caveat to show beside a metric; empty if the metric passes both tests or was not tested."""
    name = SAME_AS.get(metric, metric if metric in METRICS else metric.removeprefix("z_"))
    failed = [test.replace("_", " ") for test, passes in measured_results().get(name, {}).items() if not passes]
    return f"blind to {' and '.join(failed)}s" if failed else ""


def notes(metrics: Sequence[str]) -> list[str]:
    """Returns a footnote for each of the metrics that fails a test."""
    return [f"{NAMES[name]} is {caveat}" for name in metrics if (caveat := warning(name))]
