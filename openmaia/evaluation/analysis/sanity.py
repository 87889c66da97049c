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

from openmaia.evaluation.metric import all_metrics, find_metric

TESTS = ("missing_label", "extra_label")


SanityResults = dict[str, dict[str, bool]]
"""For each of `judged_metrics` and each of TESTS, whether the metric passes."""


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


def judged_metrics() -> list[str]:
    """Returns the names of the metrics that are put to the tests."""
    return [name for name, metric in all_metrics().items() if metric.is_judged]


def warning(column: str) -> str:
    """Returns the caveat of a column of metrics, such as "blind to missing labels"; empty if the metric passes both
    tests, or if they do not apply to it.
    """
    metric = find_metric(column)
    if metric is None or not (metric.is_judged or metric.sanity_of):
        return ""
    results = measured_results().get(metric.sanity_of or metric.name)
    if results is None:
        return "not put to the sanity tests"
    failed = [test.replace("_", " ") for test, passes in results.items() if not passes]
    return f"blind to {' and '.join(failed)}s" if failed else ""


def notes(names: Sequence[str]) -> list[str]:
    """Returns a footnote for each metric that failed a test, or was not tested."""
    return [f"{all_metrics()[name].text} is {caveat}" for name in names if (caveat := warning(name))]


def grouped_notes(names: Sequence[str]) -> list[str]:
    """Returns a footnote for each caveat, with the metrics that it is about."""
    by_caveat: dict[str, list[str]] = {}
    for name in names:
        if caveat := warning(name):
            by_caveat.setdefault(caveat, []).append(all_metrics()[name].text)
    return [f"{caveat}: {'; '.join(texts)}" for caveat, texts in by_caveat.items()]
