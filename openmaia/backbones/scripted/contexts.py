"""The experimenter's way with the task `bias`: a class shown in many contexts, the best few of them tried again on new
pictures against matched others, and one or two claimed, or none.

It reads logits where there are any, since probabilities near 0 or 1 hide differences, and no picture at all: that an object
of the class is there it takes from its prompts and from what the generator says it could not draw.
"""

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from openmaia.messages import Message, Role
from openmaia.pictures.phrases import GENERAL, article
from openmaia.pictures.vocabulary import BY_NAME, Kind, find, of_kind

TASK = "[BIAS]:"
"""Stands in the question of this task and of no other."""

NONE = "[BIAS]: NONE"
CLASS = re.compile(r"^The class is: (?P<name>.+)$", re.MULTILINE)
MEASURED = re.compile(r"^(?P<stage>screen|confirm) (?P<value>\S+) (?P<raw>\S+) \| (?P<prompt>.*)$", re.MULTILINE)
UNDRAWN = re.compile(r"^note: could not draw .* of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)

PLACES = ("small", "large", "left", "right", "top", "bottom")
TURNS = 4
"""Grounds with which each thing is shown."""
CANDIDATES = 5
"""Contexts that are tried again."""
PAIRS = 16
"""Pictures with, and as many without, each of them."""
SURE = 3.5
"""Welch's t from which a context is claimed: of five that were the best of fifty."""
LEAST = 0.25
"""Difference of mean logits below which a bias is not worth the name."""
SECOND = 0.5
"""A further context is claimed from this share of the first one's effect."""
BATCH = 60

MEASURE = """\
prompts = [
    {prompts},
]
activations, images = system.call_neuron(tools.text2image(prompts))
for prompt, activation in zip(prompts, activations):
    print(f"{stage} {{float(activation):.5g}} {{activation.raw}} | {{prompt}}")
{shown}"""
SHOWN = "tools.display(*[part for pair in list(zip(prompts, activations, images))[:6] for part in pair])\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """difference: of mean logits, with the context less without. t: Welch's."""

    context: str
    difference: float
    t: float


def reply(messages: Sequence[Message]) -> str:
    said = CLASS.search(messages[1].text)
    if said is None:
        return NONE
    name = said["name"].strip()
    seen = "\n".join(message.text for message in messages[2:] if message.role is Role.USER)
    undrawn = {found["prompt"][1:-1] for found in UNDRAWN.finditer(seen)}
    measured: dict[str, list[tuple[str, float]]] = {"screen": [], "confirm": []}
    asked = Counter[str]()
    for found in MEASURED.finditer(seen):
        asked[found["stage"]] += 1
        if found["prompt"] not in undrawn:
            measured[found["stage"]].append((found["prompt"], _logit(found["value"], found["raw"])))
    wanted = screen(name)
    is_last_call = len(messages) > 2 and TASK in messages[-1].text
    if asked["screen"] < len(wanted) and not is_last_call:
        return _experiment("screen", wanted[asked["screen"] : asked["screen"] + BATCH], [])
    if len(measured["screen"]) < len(wanted) / 2:
        return NONE  # no picture of the class can be drawn
    candidates = promising(measured["screen"], name)
    tried = confirmations(name, candidates)
    if asked["confirm"] < len(tried) and not is_last_call:
        part = tried[asked["confirm"] : asked["confirm"] + 2 * BATCH]
        return _experiment("confirm", part, candidates)
    return answer(name, [effect(_own(measured["confirm"], context, name), context, name) for context in candidates])


def grounds() -> list[str]:
    """Sand, a red background."""
    colours = [f"{article(word.name)} background" for word in of_kind(Kind.COLOUR)]
    return [*(word.name for word in of_kind(Kind.SCENE)), *colours]


def things(name: str) -> list[str]:
    """What may lie beside an object of the class: nothing that is one, includes one, or is included."""
    named = {word.name for word in find(name)}
    related = {w for wide, narrow in GENERAL.items() if named & {wide, *narrow} for w in (wide, *narrow)}
    return [word.name for word in of_kind(Kind.OBJECT) if word.name not in {*named, *related, *GENERAL}]


def screen(name: str) -> list[str]:
    """Each thing beside the class on several grounds in rotation, each ground alone, and places on grounds."""
    every = grounds()
    beside = [
        beside_on(name, thing, every[(at + turn * 5) % len(every)])
        for turn in range(TURNS)
        for at, thing in enumerate(things(name))
    ]
    alone = [f"{article(name)} on {ground}" for ground in every for _ in range(2)]
    placed = [placed_on(name, place, every[(3 * at) % len(every)]) for at, place in enumerate(PLACES * 3)]
    return [*alone, *beside, *placed]


def beside_on(name: str, thing: str, ground: str) -> str:
    return f"{article(name)} next to {article(thing)} on {ground}"


def placed_on(name: str, place: str, ground: str) -> str:
    return f"{_placed(name, place)} on {ground}"


def _placed(name: str, place: str) -> str:
    return f"a {place} {name}" if place in ("small", "large") else f"{article(name)} at the {place}"


def promising(measured: Sequence[tuple[str, float]], name: str) -> list[str]:
    """The contexts that stand out most, pictures of one layout compared with each other."""
    found = {context: effect(measured, context, name) for context in [*grounds(), *things(name), *PLACES]}
    return sorted(found, key=lambda context: (-abs(found[context].t), context))[:CANDIDATES]


def confirmations(name: str, candidates: Sequence[str]) -> list[str]:
    """For each candidate pictures with it, and the same with others of its kind in its place."""
    return [prompt for context in candidates for at in range(PAIRS) for prompt in _pair(name, context, at)]


def _pair(name: str, context: str, at: int) -> tuple[str, str]:
    every, beside = grounds(), things(name)
    ground = every[(5 * at + 1) % len(every)]
    if context in PLACES:
        others = [place for place in PLACES if place != context]
        return placed_on(name, context, ground), placed_on(name, others[at % len(others)], ground)
    if context in every:
        others = [other for other in every if other != context]
        other = others[(7 * at + 3) % len(others)]
        thing = beside[(3 * at) % len(beside)]
        if at % 2:
            return f"{article(name)} on {context}", f"{article(name)} on {other}"
        return beside_on(name, thing, context), beside_on(name, thing, other)
    others = [other for other in beside if other != context]
    return beside_on(name, context, ground), beside_on(name, others[(7 * at + 3) % len(others)], ground)


def _own(measured: Sequence[tuple[str, float]], context: str, name: str) -> list[tuple[str, float]]:
    """Those of a context's own pairs: a strong context in the pictures of the others would make them look weak."""
    own = {prompt for at in range(PAIRS) for prompt in _pair(name, context, at)}
    return [(prompt, value) for prompt, value in measured if prompt in own]


def effect(measured: Sequence[tuple[str, float]], context: str, name: str) -> Effect:
    """Pictures with the context against those without, each as it deviates from the mean of its layout."""
    layouts: dict[str, list[float]] = {}
    for prompt, value in measured:
        layouts.setdefault(_layout(prompt), []).append(value)
    means = {layout: statistics.fmean(values) for layout, values in layouts.items()}
    groups: tuple[list[float], list[float]] = ([], [])
    for prompt, value in measured:
        groups[_has(prompt, context, name)].append(value - means[_layout(prompt)])
    without, having = groups
    if len(having) < 2 or len(without) < 2:
        return Effect(context=context, difference=0.0, t=0.0)
    difference = statistics.fmean(having) - statistics.fmean(without)
    # A few pictures may agree by chance: nobody is believed to vary less than all do.
    least = statistics.pvariance([*having, *without]) / 4
    spread = sqrt(sum(max(statistics.variance(one), least) / len(one) for one in (having, without)))
    return Effect(context=context, difference=difference, t=difference / (spread + 1e-9))


def _layout(prompt: str) -> str:
    """Two figures are smaller than one."""
    return "beside" if " next to " in prompt else "alone"


def _has(prompt: str, context: str, name: str) -> bool:
    if context in PLACES:
        return prompt.startswith(_placed(name, context) + " on ")
    if context in grounds():
        return prompt.endswith(f" on {context}")
    return f" next to {article(context)} on " in prompt


def answer(name: str, effects: Sequence[Effect]) -> str:
    sure = [one for one in effects if abs(one.t) >= SURE and abs(one.difference) >= LEAST]
    if not sure:
        return NONE
    ordered = sorted(sure, key=lambda one: -abs(one.difference))
    kept = [one for one in ordered if abs(one.difference) >= SECOND * abs(ordered[0].difference)][:2]
    said = "; ".join(
        f"{_spoken(one.context)} {'raises' if one.difference > 0 else 'lowers'} the logit of {name} by "
        f"{abs(one.difference):.2g} (t {abs(one.t):.1f})"
        for one in kept
    )
    labels = "\n".join(f"[LABEL {at}]: {_signed(one)}" for at, one in enumerate(kept, start=1))
    return f"{_listed([_signed(one) for one in kept])}[BIAS]: {said}.\n{labels}"


def _signed(one: Effect) -> str:
    return f"{'+' if one.difference > 0 else '-'} {_spoken(one.context)}"


def _spoken(context: str) -> str:
    if context in PLACES:
        return f"{context} object" if context in ("small", "large") else f"object at the {context}"
    if context in grounds():
        return f"{context} as the ground" if context in BY_NAME else context.split(" ", 1)[1]
    return f"{article(context)} beside it"


def _experiment(stage: str, prompts: Sequence[str], hypotheses: Sequence[str]) -> str:
    listing = ",\n    ".join(repr(prompt) for prompt in prompts)
    code = MEASURE.format(stage=stage, prompts=listing, shown=SHOWN if stage == "confirm" else "")
    return f"{_listed([_spoken(one) for one in hypotheses])}[CODE]:\n```python\n{code}```"


def _listed(hypotheses: Sequence[str]) -> str:
    lines = "\n".join(f"{at}. {one}" for at, one in enumerate(hypotheses, start=1))
    return f"[HYPOTHESIS LIST]:\n{lines}\n\n" if lines else ""


def _logit(value: str, raw: str) -> float:
    try:
        return float(raw)
    except ValueError:  # a unit without a logit says None
        p = min(max(float(value), 1e-6), 1 - 1e-6)
        return log(p / (1 - p))
