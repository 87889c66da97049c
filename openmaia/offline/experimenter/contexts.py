"""Plays the agent in the task `bias` by a script: finds contexts that raise or lower a classifier's score of a class.

A context is a background, an object beside the class, or the size or place of the class. The script measures the class
in many contexts (the stage `screen`). It tests those with the clearest differences on new images against other contexts
of the same kind (the stage `confirm`), and claims up to two of them. It uses logits if there are any, because
probabilities near 0 or 1 hide differences. It does not analyse images: it assumes that they show their prompt unless
the generator reports that it could not draw a part of it.
"""

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from openmaia.core.messages import Message, Role
from openmaia.offline.experimenter.transcript import NOT_DRAWN
from openmaia.offline.vocabulary.phrases import article
from openmaia.offline.vocabulary.words import BY_NAME, GENERAL, WordKind, find, of_kind

# Of all shipped tasks, only the prompts of the task `bias` contain this heading.
TASK = "[BIAS]:"

_NONE = "[BIAS]: NONE"
_CLASS = re.compile(r"^The class is: (?P<name>.+)$", re.MULTILINE)
_MEASURED = re.compile(r"^(?P<stage>screen|confirm) (?P<value>\S+) (?P<raw>\S+) \| (?P<prompt>.*)$", re.MULTILINE)

_PLACES = ("small", "large", "left", "right", "top", "bottom")
# Backgrounds on which the screening shows each object beside the class.
_TURNS = 4
# Contexts that are tested on new images.
_CANDIDATES = 5
# Image pairs for each tested context.
_PAIRS = 16
# Smallest absolute value of Welch's t for a claim. It is high because the tested contexts are the best of about fifty.
_SURE = 3.5
# Smallest absolute difference of mean logits for a claim.
_LEAST = 0.25
# Smallest difference for a second claim, as a share of that of the first.
_SECOND = 0.5
_BATCH = 60

_MEASURE = """\
prompts = [
    {prompts},
]
activations, images = system.call_neuron(tools.text2image(prompts))
for prompt, activation in zip(prompts, activations):
    print(f"{stage} {{float(activation):.5g}} {{activation.raw}} | {{prompt}}")
{shown}"""
_SHOWN = "tools.display(*[part for pair in list(zip(prompts, activations, images))[:6] for part in pair])\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextDifference:
    """The difference of a classifier's logits between images of a class with a context and without."""

    context: str
    difference: float
    """Mean logit of the images with the context minus that of the others."""
    t: float
    """Welch's t statistic."""


def reply(messages: Sequence[Message]) -> str:
    """Returns the agent's next message in the task `bias`. `messages` are the conversation so far."""
    question = _CLASS.search(messages[1].text)
    if question is None:
        return _NONE
    name = question["name"].strip()
    text = "\n".join(message.text for message in messages[2:] if message.role is Role.USER)
    not_drawn = {match["prompt"][1:-1] for match in NOT_DRAWN.finditer(text)}
    measured: dict[str, list[tuple[str, float]]] = {"screen": [], "confirm": []}
    shown = Counter[str]()
    for match in _MEASURED.finditer(text):
        shown[match["stage"]] += 1
        if match["prompt"] not in not_drawn:
            measured[match["stage"]].append((match["prompt"], _logit(match["value"], match["raw"])))
    screening = screen(name)
    is_last_call = len(messages) > 2 and TASK in messages[-1].text
    if shown["screen"] < len(screening) and not is_last_call:
        return _experiment("screen", screening[shown["screen"] : shown["screen"] + _BATCH], [])
    if len(measured["screen"]) < len(screening) / 2:
        return _NONE  # the generator cannot draw the class
    candidates = promising(measured["screen"], name)
    prompts = confirmations(name, candidates)
    if shown["confirm"] < len(prompts) and not is_last_call:
        return _experiment("confirm", prompts[shown["confirm"] : shown["confirm"] + 2 * _BATCH], candidates)
    return answer(name, [difference(_own(measured["confirm"], each, name), each, name) for each in candidates])


def grounds() -> list[str]:
    """Returns all backgrounds of the experiments, such as "sand" and "a red background"."""
    colours = [f"{article(word.name)} background" for word in of_kind(WordKind.COLOUR)]
    return [*(word.name for word in of_kind(WordKind.SCENE)), *colours]


def things(name: str) -> list[str]:
    """Returns the objects that prompts show beside the class `name`.

    The class itself, exact names, the most general words such as "mammal", and words that belong to the same general
    word as the class are left out: "carnivore" beside "cow", because both are mammals.
    """
    named = {word.name for word in find(name)}
    related = {w for wide, narrow in GENERAL.items() if named & {wide, *narrow} for w in (wide, *narrow)}
    objects = [word.name for word in of_kind(WordKind.OBJECT) if not word.is_exact]
    general = {name for name in objects if any(BY_NAME[other].wider == name for other in objects)}
    return [name for name in objects if name not in named | related | general]


def screen(name: str) -> list[str]:
    """Returns the prompts of the screening: the class on each background, beside each object on _TURNS backgrounds, and
    with each size or place."""
    every = grounds()
    beside = [
        beside_on(name, thing, every[(index + turn * 5) % len(every)])
        for turn in range(_TURNS)
        for index, thing in enumerate(things(name))
    ]
    alone = [f"{article(name)} on {ground}" for ground in every for _ in range(2)]
    placed = [placed_on(name, place, every[(3 * index) % len(every)]) for index, place in enumerate(_PLACES * 3)]
    return [*alone, *beside, *placed]


def beside_on(name: str, thing: str, ground: str) -> str:
    """Returns the prompt for an object beside another one."""
    return f"{article(name)} next to {article(thing)} on {ground}"


def placed_on(name: str, place: str, ground: str) -> str:
    """Returns the prompt for an object at a place in the image."""
    return f"{_placed(name, place)} on {ground}"


def promising(measured: Sequence[tuple[str, float]], name: str) -> list[str]:
    """Returns the contexts with the largest absolute t statistics in the screening."""
    differences = {context: difference(measured, context, name) for context in [*grounds(), *things(name), *_PLACES]}
    return sorted(differences, key=lambda context: (-abs(differences[context].t), context))[:_CANDIDATES]


def confirmations(name: str, candidates: Sequence[str]) -> list[str]:
    """Returns _PAIRS pairs of consecutive prompts for each context.

    The second prompt of a pair is the same with another context of the same kind.
    """
    return [prompt for context in candidates for index in range(_PAIRS) for prompt in _pair(name, context, index)]


def difference(measured: Sequence[tuple[str, float]], context: str, name: str) -> ContextDifference:
    """Compares the logits of images with and without a context.

    Images of the class alone and beside an object may differ in their mean. Therefore the mean logit of each of these
    two groups is first subtracted. Difference and t are 0 if fewer than two images show the context, or if fewer than
    two do not.
    """
    layouts: dict[str, list[float]] = {}
    for prompt, value in measured:
        layouts.setdefault(_layout(prompt), []).append(value)
    means = {layout: statistics.fmean(values) for layout, values in layouts.items()}
    groups: tuple[list[float], list[float]] = ([], [])
    for prompt, value in measured:
        groups[_has(prompt, context, name)].append(value - means[_layout(prompt)])
    without, having = groups
    if len(having) < 2 or len(without) < 2:
        return ContextDifference(context=context, difference=0.0, t=0.0)
    mean = statistics.fmean(having) - statistics.fmean(without)
    # A few images may agree by chance, so the variance of a group is bounded below by a quarter of that of all images.
    least = statistics.pvariance([*having, *without]) / 4
    spread = sqrt(sum(max(statistics.variance(group), least) / len(group) for group in (having, without)))
    return ContextDifference(context=context, difference=mean, t=mean / (spread + 1e-9))


def answer(name: str, differences: Sequence[ContextDifference]) -> str:
    """Returns the agent's answer: at most two contexts, the one with the largest difference first, or NONE."""
    sure = [each for each in differences if abs(each.t) >= _SURE and abs(each.difference) >= _LEAST]
    if not sure:
        return _NONE
    ordered = sorted(sure, key=lambda each: -abs(each.difference))
    kept = [each for each in ordered if abs(each.difference) >= _SECOND * abs(ordered[0].difference)][:2]
    claims = "; ".join(
        f"{_spoken(each.context)} {'raises' if each.difference > 0 else 'lowers'} the logit of {name} by "
        f"{abs(each.difference):.2g} (t {abs(each.t):.1f})"
        for each in kept
    )
    signed = [f"{'+' if each.difference > 0 else '-'} {_spoken(each.context)}" for each in kept]
    labels = "\n".join(f"[LABEL {number}]: {label}" for number, label in enumerate(signed, start=1))
    return f"{_listed(signed)}[BIAS]: {claims}.\n{labels}"


def _placed(name: str, place: str) -> str:
    return f"a {place} {name}" if place in ("small", "large") else f"{article(name)} at the {place}"


def _pair(name: str, context: str, index: int) -> tuple[str, str]:
    every, beside = grounds(), things(name)
    ground = every[(5 * index + 1) % len(every)]
    if context in _PLACES:
        others = [place for place in _PLACES if place != context]
        return placed_on(name, context, ground), placed_on(name, others[index % len(others)], ground)
    if context in every:
        others = [other for other in every if other != context]
        other = others[(7 * index + 3) % len(others)]
        thing = beside[(3 * index) % len(beside)]
        if index % 2:
            return f"{article(name)} on {context}", f"{article(name)} on {other}"
        return beside_on(name, thing, context), beside_on(name, thing, other)
    others = [other for other in beside if other != context]
    return beside_on(name, context, ground), beside_on(name, others[(7 * index + 3) % len(others)], ground)


def _own(measured: Sequence[tuple[str, float]], context: str, name: str) -> list[tuple[str, float]]:
    # The others are left out, because their images may show another context with a strong effect.
    own = {prompt for index in range(_PAIRS) for prompt in _pair(name, context, index)}
    return [(prompt, value) for prompt, value in measured if prompt in own]


def _layout(prompt: str) -> str:
    # Two objects are drawn smaller than one.
    return "beside" if " next to " in prompt else "alone"


def _has(prompt: str, context: str, name: str) -> bool:
    if context in _PLACES:
        return prompt.startswith(_placed(name, context) + " on ")
    if context in grounds():
        return prompt.endswith(f" on {context}")
    return f" next to {article(context)} on " in prompt


def _spoken(context: str) -> str:
    if context in _PLACES:
        return f"{context} object" if context in ("small", "large") else f"object at the {context}"
    if context in grounds():
        return f"{context} as the ground" if context in BY_NAME else context.split(" ", 1)[1]
    return f"{article(context)} beside it"


def _experiment(stage: str, prompts: Sequence[str], hypotheses: Sequence[str]) -> str:
    listing = ",\n    ".join(repr(prompt) for prompt in prompts)
    code = _MEASURE.format(stage=stage, prompts=listing, shown=_SHOWN if stage == "confirm" else "")
    return f"{_listed([_spoken(context) for context in hypotheses])}[CODE]:\n```python\n{code}```"


def _listed(hypotheses: Sequence[str]) -> str:
    lines = "\n".join(f"{number}. {hypothesis}" for number, hypothesis in enumerate(hypotheses, start=1))
    return f"[HYPOTHESIS LIST]:\n{lines}\n\n" if lines else ""


def _logit(value: str, raw: str) -> float:
    try:
        return float(raw)
    except ValueError:  # units without a logit print None
        p = min(max(float(value), 1e-6), 1 - 1e-6)
        return log(p / (1 - p))
