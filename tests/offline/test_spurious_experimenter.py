"""The scripted experimenter on the task `spurious`."""

import numpy as np
import pytest

from openmaia.core.messages import user
from openmaia.offline.experimenter import spurious
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.offline.experimenter.transcript import Transcript


def _transcript(by_thing: float, by_place: float) -> Transcript:
    """The measurements of a unit that one object and one place activate by these amounts."""
    seen = Transcript(replies=2)
    control: list[tuple[str, float]] = []
    edits: list[tuple[str, float]] = []
    for thing in ("bird", "fish", "flower"):
        for place in ("sand", "snow", "grass"):
            there = by_place * (place == "snow")
            value = by_thing * (thing == "bird") + there
            base = f"a {thing} on {place}"
            control.append((base, value))
            edits += [(f"{base} => as drawn", value), (f"{base} => remove the {thing}", there)]
    seen.measured |= {"control": control, "edit": edits}
    return seen


@pytest.mark.parametrize(
    ("by_thing", "by_place", "verdict"), [(5, 1, "SELECTIVE"), (1, 5, "SPURIOUS"), (0, 3, "SPURIOUS")]
)
def test_verdict_follows_the_measurements(by_thing: float, by_place: float, verdict: str):
    reply = spurious.reply(_transcript(by_thing, by_place), user("…"), _blind())
    assert reply.endswith(f"[LABEL]: {verdict}")


def test_interrupted_investigation_is_undecided():
    reply = spurious.reply(Transcript(replies=1), user("… [LABEL]: SELECTIVE or …"), _blind())
    assert reply.endswith("[LABEL]: undecided")


def _blind() -> Eyes:
    return Eyes(lambda pixels: np.zeros(1000, np.float32))
