"""As `repeat`, with other seeds and 40 images at the first look: the number at which, by the part `again`, a verdict repeats more
often. It was chosen there, before this was measured."""

from pathlib import Path
from typing import Any

from measure.science.repeat import Twofold, measure_twice

TESTS = Twofold(
    part="repeat_40",
    section="The same descriptions with 40 images at the first look",
    csv=Path(__file__).with_suffix(".csv"),
    seeds=(103, 104),
    overrides=("evaluate.n=40", "evaluate.looks=[60]"),
)


def measure(smoke: bool) -> dict[str, Any]:
    return measure_twice(TESTS, smoke)
