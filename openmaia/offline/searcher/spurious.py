"""The judgement whether a unit follows an object, or what only comes along with it: what is shown, and the answer.

Objects that the exemplars show are measured in every place out of doors at every time of day, one image of each. As in an
analysis of variance with a balanced design, the unit is selective if its activation depends more on the object than on the place
or the time. In addition, removing the object that excites it most must take away more than half of what it is above the median.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmaia.core.messages import Message
from openmaia.offline.scenes.graph import Figure, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS, PLACES
from openmaia.offline.searcher.findings import ToldExemplar
from openmaia.offline.searcher.labels import scene_of
from openmaia.offline.searcher.pairs import TIMES, prompt

UNDECIDED = "[REASONING]: There was no room for the experiment that would tell.\n[LABEL]: undecided"
_THINGS = 6
_OUTDOORS = tuple(place for place in PLACES if place not in INDOORS)
# Every third setting of an object is edited, so that all places and all times are among them.
_EDITED = 3


def is_asked(messages: Sequence[Message]) -> bool:
    """Returns whether a conversation is about whether a unit is selective or spurious."""
    return any("[LABEL]: SELECTIVE or SPURIOUS" in message.text for message in messages[1:2])


def things(exemplars: Sequence[ToldExemplar]) -> list[str]:
    """Returns the objects to try: those that most top exemplars show, and others where these are too few."""
    counts = Counter(
        kind for each in exemplars if each.kind == "top" for kind in {f.kind for f in scene_of(each.whole).figures}
    )
    known = [name for name, kind in kinds().items() if kind.where != "sky"]
    return sorted(known, key=lambda name: (-counts[name], name))[:_THINGS]


def prompts(chosen: Sequence[str]) -> list[str]:
    """Returns a prompt for each object, place and time, the last of which changes first."""
    return [
        prompt(Scene(figures=(Figure(id=0, kind=thing),), place=place, time=time, weather="clear", style="flat"))
        for thing in chosen
        for place in _OUTDOORS
        for time in TIMES
    ]


def edits(chosen: Sequence[str], values: Sequence[float]) -> list[tuple[str, str]]:
    """Returns prompts of the object that excites the unit most, and the instruction that removes it."""
    best = _best(chosen, _table(chosen, values))
    return [(text, f"remove the {best}") for text in prompts([best])[::_EDITED]]


def answer(chosen: Sequence[str], values: Sequence[float], changed: Sequence[float]) -> str:
    """Returns the answer.

    Args:
        values: The activations of the images of `prompts`.
        changed: Those of the images of `edits` before and after each edit. Empty if there are none.
    """
    table = _table(chosen, values)
    means = {what: table.mean(axis=axes) for what, axes in (("object", (1, 2)), ("place", (0, 2)), ("time", (0, 1)))}
    spread = {what: float(each.std()) for what, each in means.items()}
    best, usual = _best(chosen, table), float(np.median(table))
    before, after = np.array(changed[0::2]), np.array(changed[1::2])
    above, lost = (float(each.mean()) if len(changed) else 0.0 for each in (before - usual, before - after))
    is_selective = spread["object"] > max(spread["place"], spread["time"]) and (not len(changed) or lost > above / 2)
    removed = f" Without the {best} it loses {lost:.3g} of {above:.3g} above the median." if len(changed) else ""
    return (
        f"[REASONING]: Between objects the activation varies by {spread['object']:.3g}, between places by "
        f"{spread['place']:.3g}, between times of day by {spread['time']:.3g} (standard deviations of means). It is highest for "
        f"a {best}, in the place {_OUTDOORS[int(means['place'].argmax())]}, and at the time "
        f"{TIMES[int(means['time'].argmax())]}.{removed}\n[LABEL]: {'SELECTIVE' if is_selective else 'SPURIOUS'}"
    )


def _table(chosen: Sequence[str], values: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.reshape(values, (len(chosen), len(_OUTDOORS), len(TIMES)))


def _best(chosen: Sequence[str], table: npt.NDArray[np.float64]) -> str:
    return chosen[int(table.mean(axis=(1, 2)).argmax())]
