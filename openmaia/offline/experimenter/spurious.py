"""Plays the agent in the task `spurious` by a script: decides whether a unit is selective for an object or spurious.

The script measures images of objects in places (scenes), and the same images after an edit has removed the object. The
places are all scenes of the vocabulary, and the objects are those that the displayed exemplars seem to show. As in a
two-way analysis of variance, the unit is selective if its activation depends more on the object than on the place. In
addition, removing the object with the highest activations must take away more than half of their excess over the median
activation.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from openmaia.core.messages import Message
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.offline.experimenter.transcript import Transcript
from openmaia.offline.vocabulary.phrases import article
from openmaia.offline.vocabulary.words import GENERAL, WordKind, of_kind

# Objects that are tried in every place.
_THINGS = 6

_REPEATS = 2

_PLACES = [word.name for word in of_kind(WordKind.SCENE)]
_OBJECTS = [word.name for word in of_kind(WordKind.OBJECT)]

LOOK = """\
for name in ("top", "random"):
    try:
        exemplars = tools.dataset_exemplars(system, kind=name)
    except ToolError as error:
        print(error)
        continue
    for rank, (activation, image) in enumerate(exemplars):
        print(f"{name} {rank}: {float(activation):.5g} (percentile {activation.percentile})")
        tools.display(image.original)
"""
_TEST = """\
things = {things!r}
places = {places!r}
prompts = [f"{{thing}} on {{place}}" for thing in things for place in places for _ in range({repeats})]
pictures = tools.text2image(prompts)
values = [float(activation) for activation in system.call_neuron(pictures)[0]]
for prompt, value in zip(prompts, values):
    print(f"control {{value:.5g}} (as drawn) | {{prompt}}")
orders = [f"remove {{prompt.split(' on ')[0].split(' ', 1)[1]}}" for prompt in prompts]
edited, _ = tools.edit_images(pictures[::{repeats}], orders[::{repeats}])
left = [float(activation) for activation in system.call_neuron(edited[1::2])[0]]
for prompt, order, before, after in zip(prompts[::{repeats}], orders[::{repeats}], values[::{repeats}], left):
    print(f"edit {{before:.5g}} (before) | {{prompt}} => as drawn")
    print(f"edit {{after:.5g}} (after) | {{prompt}} => {{order}}")
"""
_UNDECIDED = "[REASONING]: There was no room for the experiment that would tell.\n[LABEL]: undecided"


def is_task(messages: Sequence[Message]) -> bool:
    """Returns whether a conversation is about whether a unit is selective or spurious."""
    return any("[LABEL]: SELECTIVE or SPURIOUS" in message.text for message in messages[1:2])


def reply(seen: Transcript, last: Message, eyes: Eyes) -> str:
    """Returns the agent's next message in the task `spurious`.

    The answer is "undecided" if the conversation has to end before the measurements.
    """
    told_to_end = seen.replies > 0 and "[LABEL]: SELECTIVE" in last.text
    if seen.of("control") and seen.edits:
        return _answer(seen)
    if told_to_end or seen.replies > 4:
        return _UNDECIDED
    if not seen.exemplars:
        return f"[HYPOTHESIS]: unknown\n\n[CODE]:\n```python\n{LOOK}```"
    things = _things(seen, eyes)
    code = _TEST.format(things=[article(thing) for thing in things], places=_PLACES, repeats=_REPEATS)
    return f"[HYPOTHESIS]: one of {', '.join(things)}, or the place\n\n[CODE]:\n```python\n{code}```"


def _things(seen: Transcript, eyes: Eyes) -> list[str]:
    # Of a general word and its special case, only the one with more evidence is tried.
    sights = [eyes.see(each.original.pixels) for each in seen.exemplars if each.original is not None]
    evidence = {word: sum(sight[word] for sight in sights) for word in _OBJECTS}
    ranked = sorted(_OBJECTS, key=lambda word: (-evidence[word], word))
    chosen: list[str] = []
    for word in ranked:
        related = {special for general in chosen for special in GENERAL.get(general, ())}
        if word not in related and not set(GENERAL.get(word, ())) & set(chosen):
            chosen.append(word)
    return chosen[:_THINGS]


def _answer(seen: Transcript) -> str:
    cells: dict[tuple[str, str], list[float]] = {}
    for key, value in seen.of("control"):
        thing, _, place = key.partition(" on ")
        cells.setdefault((thing, place), []).append(value)
    table = _table({cell: float(np.mean(values)) for cell, values in cells.items()})
    by_thing, by_place = (float(table.mean(axis=axis).var()) for axis in (1, 0))
    things = list(dict.fromkeys(thing for thing, _ in cells))
    best = things[int(table.mean(axis=1).argmax())]
    removed = [edit for edit in seen.edits if edit.base.startswith(f"{best} on ")]
    usual = float(np.median(table))
    height = sum(edit.before - usual for edit in removed)
    fell = sum(edit.before - edit.after for edit in removed)
    is_selective = by_thing > by_place and fell > 0.5 * height
    return (
        f"[REASONING]: Between things the activation varies by {by_thing**0.5:.3g}, between places by {by_place**0.5:.3g} "
        f"(standard deviations of means); {best} excites it most, and of {height / max(len(removed), 1):.3g} above the usual "
        f"it loses {fell / max(len(removed), 1):.3g} when that is removed.\n"
        f"[LABEL]: {'SELECTIVE' if is_selective else 'SPURIOUS'}"
    )


def _table(means: Mapping[tuple[str, str], float]) -> npt.NDArray[np.float64]:
    # A cell that could not be drawn gets the median of all.
    things, places = (list(dict.fromkeys(cell[side] for cell in means)) for side in (0, 1))
    middle = float(np.median(list(means.values())))
    return np.array([[means.get((thing, place), middle) for place in places] for thing in things])
