"""Whether each metric notices a label that is missing and one that is wrong, on units of known truth."""

from typing import Any

from tests.science import evaluated


def measure(smoke: bool) -> dict[str, Any]:
    return evaluated.sanity(smoke)
