"""The agent as a backbone: it reads the messages, selects a stage, and writes code or the answer."""

from collections.abc import Sequence
from typing import Literal

from openmaia.core.messages import Chat, Message, Reply
from openmaia.offline.searcher import biases, search, spurious
from openmaia.offline.searcher.findings import Findings, read
from openmaia.offline.searcher.search import Images

_LOOK = """\
for kind in ("top", "random"):
    for activation, image in tools.dataset_exemplars(system, kind):
        print(f"{kind} exemplar: {float(activation):.5g}")
        tools.display(image.masked if kind == "top" else image.original)
"""
# Whole images: what comes along with an object is around it.
_LOOK_WHOLE = """\
for kind in ("top", "random"):
    for activation, image in tools.dataset_exemplars(system, kind):
        print(f"{kind} exemplar: {float(activation):.5g}")
        tools.display(image.original)
"""
# The logit of a class, because probabilities near 0 or 1 hide differences.
_SHOWN = """\
def show(stage, activations):
    print(f"{stage}:", *[f"{activation if activation.raw is None else activation.raw:.5g}" for activation in activations])

"""
_MEASURE = """\
prompts = [
    %s,
]
measured = []
for start in range(0, len(prompts), 100):
    activations, images = system.call_neuron(tools.text2image(prompts[start:start + 100]))
    show("%s", activations)
    measured += zip(activations, prompts[start:])
for activation, prompt in sorted(measured, reverse=True)[:5]:
    print(f"highest: {activation:.5g} for {prompt}")
"""
_EDIT = """\
prompts = [
    %s,
]
orders = [
    %s,
]
images, captions = tools.edit_images(prompts, orders)
activations, images = system.call_neuron(images)
show("edit", activations)
"""
_NONE = "[DESCRIPTION]: NONE"
_MOST_REPLIES = 9

Search = Literal["full", "plain"]


class Searcher:
    """Searches the words of the grammar for what a unit responds to. Its replies are a function of the messages."""

    def __init__(self, search: Search, without: Sequence[str] = ()):
        self._is_plain = search == "plain"
        self._images = Images(tuple(without))

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat.messages) for chat in chats]

    def _reply(self, messages: Sequence[Message]) -> Reply:
        name, seen = biases.class_asked(messages), read(messages)
        if spurious.is_asked(messages):
            text = _next_of_judgement(seen)
        else:
            text = self._next(seen) if name is None else _next_of_class(name, seen)
        words = sum(len(message.text.split()) for message in messages)
        return Reply(text=text, prompt_tokens=words, generated_tokens=len(text.split()))

    def _next(self, seen: Findings) -> str:
        values, images = seen.values, self._images
        if not (self._is_plain or seen.has_looked or "dataset_exemplars" in seen.withheld):
            return _code([], _LOOK)
        if seen.replies > _MOST_REPLIES or "text2image" in seen.withheld:
            return _NONE
        if "screen" not in values:
            return _NONE if seen.is_last_call else _code([], _measure("screen", images.screening()))
        if len(values["screen"]) != len(images.screening()):
            return _NONE  # some of the images failed
        labels = search.candidates(images, values["screen"], seen.exemplars)
        if "single" not in values:
            return _NONE if seen.is_last_call else _code(labels, _measure("single", images.prompts(labels)))
        if len(values["single"]) != len(images.prompts(labels)):
            return _NONE
        one = search.scores(images, labels, values["single"], values["screen"])
        pairs = search.combinations(images, one, seen.exemplars)
        if pairs and "pair" not in values and not seen.is_last_call:
            return _code(search.best(one), _measure("pair", images.prompts(pairs)))
        is_whole = len(values.get("pair", ())) == len(images.prompts(pairs))
        two = search.scores(images, pairs, values["pair"], values["screen"]) if pairs and is_whole else {}
        if self._is_plain:
            return _answer(search.plain_choice(one, two))
        return self._conclude(seen, one, two)

    def _conclude(self, seen: Findings, one: search.Scores, two: search.Scores) -> str:
        kept = search.shortlist(one, two, seen.exemplars)
        labels = list(dict.fromkeys(label for each in kept for label in each))
        orders = self._images.edits(labels)
        changed = seen.values.get("edit", ())
        if orders and not changed and not seen.is_last_call and "edit_images" not in seen.withheld:
            return _code(labels, _edit(orders))
        is_whole = len(changed) == 2 * len(orders)
        fell = search.falls(self._images, labels, changed, seen.values["screen"]) if is_whole else {}
        return _answer(search.choice(kept, one, fell))


def _next_of_class(name: str, seen: Findings) -> str:
    # In the task `bias`.
    if not name or "text2image" in seen.withheld:
        return biases.NONE
    values, screening = seen.values, biases.screening(name)
    if "screen" not in values:
        return biases.NONE if seen.is_last_call else _code([], _measure("screen", screening))
    if len(values["screen"]) != len(screening):
        return biases.NONE  # some of the images failed
    contexts = biases.candidates(name, values["screen"])
    prompts = biases.confirmations(name, contexts)
    if "pair" not in values:
        return biases.NONE if seen.is_last_call else _code(contexts, _measure("pair", prompts))
    return biases.answer(name, contexts, values["pair"]) if len(values["pair"]) == len(prompts) else biases.NONE


def _next_of_judgement(seen: Findings) -> str:
    # In the task `spurious`.
    values = seen.values
    if not (seen.has_looked or "dataset_exemplars" in seen.withheld or seen.is_last_call):
        return _code([], _LOOK_WHOLE)
    things = spurious.things(seen.exemplars)
    prompts = spurious.prompts(things)
    if "screen" not in values and not seen.is_last_call and "text2image" not in seen.withheld:
        return _code(things, _measure("screen", prompts))
    if len(values.get("screen", ())) != len(prompts):
        return spurious.UNDECIDED
    orders = spurious.edits(things, values["screen"])
    if "edit" not in values and not seen.is_last_call and "edit_images" not in seen.withheld:
        return _code(things, _edit(orders))
    changed = values.get("edit", ())
    return spurious.answer(things, values["screen"], changed if len(changed) == 2 * len(orders) else ())


def _measure(stage: str, prompts: Sequence[str]) -> str:
    return _SHOWN + _MEASURE % (_listing(prompts), stage)


def _edit(orders: Sequence[tuple[str, str]]) -> str:
    return _SHOWN + _EDIT % (_listing([base for base, _ in orders]), _listing([order for _, order in orders]))


def _listing(items: Sequence[str]) -> str:
    return ",\n    ".join(repr(item) for item in items)


def _code(labels: Sequence[str], code: str) -> str:
    listed = "\n".join(f"{n}. {label}" for n, label in enumerate(labels, start=1))
    return f"[HYPOTHESIS LIST]:\n{listed or '1. not known yet'}\n\n[CODE]:\n```python\n{code}```"


def _answer(labels: Sequence[str]) -> str:
    if not labels:
        return _NONE
    numbered = "\n".join(f"[LABEL {n}]: {label}" for n, label in enumerate(labels, start=1))
    return f"[DESCRIPTION]: The unit responds to {' or to '.join(labels)}.\n{numbered}"
