"""The agent as a backbone: it reads the messages, selects a stage, and writes code or the answer."""

from collections.abc import Sequence
from typing import Literal

from openmaia.core.messages import Chat, Reply
from openmaia.offline.searcher import baselines, biases, rounds, search, spurious
from openmaia.offline.searcher.explanations import Explanation, explanations
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
_MOST_REPLIES = 11
# The fit of a label that is looked at among others, of an explanation that is checked with some further ones, and of an answer
# that needs no other evidence.
_PROMISING, _LIKELY, _SURE = 0.35, 0.5, 0.9
_CHECKED = 5

Stage = tuple[str, Sequence[str]]
"""What measures images, and their prompts."""

Search = Literal["full", "plain", "random"]


class Searcher:
    """Searches the words of the grammar for what a unit responds to. Its replies are a function of the messages."""

    def __init__(self, search: Search, without: Sequence[str] = ()):
        self._is_plain, self._is_random = search == "plain", search == "random"
        self._without = tuple(without)
        self._images = Images(self._without)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        messages = chat.messages
        name, seen = biases.class_asked(messages, self._without), read(messages)
        if spurious.is_asked(messages):
            text = _next_of_judgement(seen)
        elif name is not None:
            text = _next_of_class(name, seen, self._without)
        elif self._is_random:
            text = _answer(baselines.at_random(self._images.labels(), seen, chat.conversation))
        else:
            text = self._next(seen)
        words = sum(len(message.text.split()) for message in messages)
        return Reply(text=text, prompt_tokens=words, generated_tokens=len(text.split()))

    def _next(self, seen: Findings) -> str:
        values, images = seen.values, self._images
        if not (self._is_plain or seen.has_looked or "dataset_exemplars" in seen.withheld):
            return _code([], _LOOK)
        if seen.replies > _MOST_REPLIES + 2 * len(seen.refuted):
            return _NONE
        if "text2image" in seen.withheld:
            return _answer(baselines.without_images(images.labels(), seen))
        if "screen" not in values:
            return _NONE if seen.is_last_call else _code([], _measure("screen", images.screening()))
        if len(values["screen"]) != len(images.screening()):
            return _NONE  # some of the images failed
        labels = search.candidates(images, values["screen"], seen.telling("screen"), seen.bank)
        if "single" not in values:
            return _NONE if seen.is_last_call else _code(labels, _measure("single", images.prompts(labels)))
        if len(values["single"]) != len(images.prompts(labels)):
            return _NONE
        one = search.scores(images, labels, values["single"], values["screen"])
        is_silent = not (self._is_plain or search.shortlist(images, one, {}, seen.telling("screen", "single")))
        if is_silent and "crowd" not in values and not seen.is_last_call:
            return _code(search.best(one), _measure("crowd", images.crowds()))
        stages = [("screen", images.screening()), ("single", images.prompts(labels)), ("crowd", images.crowds())]
        if self._is_plain:
            return self._compare(seen, one, stages)
        # The label of one word that explains most, among others: with what it excites the unit, and with what it does not.
        promising = (each.labels for each in self._explained(seen, stages) if each.fit >= _PROMISING)
        label = next((each[0] for each in promising if len(each) == 1 and each[0] in one), "")
        if label and "around" not in values and not seen.is_last_call:
            return _code(search.best(one), _measure("around", images.around(label)))
        return self._compare(seen, one, [*stages, ("around", images.around(label) if label else ())])

    def _explained(self, seen: Findings, stages: Sequence[Stage]) -> Sequence[Explanation]:
        whole = [(stage, texts) for stage, texts in stages if texts and len(seen.values.get(stage, ())) == len(texts)]
        sentences = tuple(text for _, texts in whole for text in texts)
        return explanations(
            sentences, tuple(value for stage, _ in whole for value in seen.values[stage]), self._without
        )

    def _compare(self, seen: Findings, one: search.Scores, stages: Sequence[Stage]) -> str:
        # The single labels with those of more than one word.
        values, images = seen.values, self._images
        crowded = values.get("crowd", ())
        crowded = crowded if len(crowded) == len(images.crowds()) else ()
        pairs = search.compounds(images, values["screen"], crowded, seen.telling("screen", "single", "crowd"))
        if pairs and "pair" not in values and not seen.is_last_call:
            return _code(search.best(one), _measure("pair", images.prompts(pairs)))
        is_whole = len(values.get("pair", ())) == len(images.prompts(pairs))
        two = search.scores(images, pairs, values["pair"], values["screen"]) if pairs and is_whole else {}
        if self._is_plain:
            return _answer(rounds.next_plain_choice(one, two, seen.refuted))
        return self._check(seen, one, two, [*stages, ("pair", images.prompts(pairs))], [*one, *pairs])

    def _check(
        self, seen: Findings, one: search.Scores, two: search.Scores, stages: Sequence[Stage], tested: Sequence[str]
    ) -> str:
        # The labels of what explains the activations so far, each with near misses, until those of the best are all tested.
        for stage in ("check", "recheck"):
            found = self._explained(seen, stages)
            listed = dict.fromkeys(label for each in found[:_CHECKED] for label in each.labels)
            new = [each for each in listed if each not in tested and self._images.pairs(each)]
            if not found or found[0].fit < _LIKELY or not new:
                break
            prompts = self._images.prompts(new)
            if stage not in seen.values and not seen.is_last_call:
                return _code(new, _measure(stage, prompts))
            stages, tested = [*stages, (stage, prompts)], [*tested, *new]
        left = (each for each in self._explained(seen, stages) if seen.refuted_labels.isdisjoint(each.labels))
        best = next(left, None)
        return _answer(best.labels) if best and best.fit >= _SURE else self._conclude(seen, one, two)

    def _conclude(self, seen: Findings, one: search.Scores, two: search.Scores) -> str:
        if seen.refuted:
            labels, unedited = rounds.next_choice(self._images, seen, one, two)
            return _code(unedited, _edit(self._images.edits(unedited))) if unedited else _answer(labels)
        both = search.alternatives(self._images, [*one], seen.values)
        kept = search.shortlist(self._images, one, two, seen.telling("screen", "single", "crowd", "pair"), both)
        labels = list(dict.fromkeys(label for each in kept for label in each))
        orders = self._images.edits(labels)
        changed = seen.values.get("edit", ())
        if orders and not changed and not seen.is_last_call and "edit_images" not in seen.withheld:
            return _code(labels, _edit(orders))
        is_whole = len(changed) == 2 * len(orders)
        fell = search.falls(self._images, labels, changed, seen.values["screen"]) if is_whole else {}
        chosen = search.choice(kept, fell)
        return self._except(seen, chosen[0], [*one]) if len(chosen) == 1 and chosen[0] in one else _answer(chosen)

    def _except(self, seen: Findings, label: str, one: Sequence[str]) -> str:
        values, images = seen.values, self._images
        tested = search.excepted(images, label, one, values)
        if not tested:
            return _answer([label])
        if "except" not in values and not seen.is_last_call:
            return _code([label, *tested], _measure("except", images.prompts(tested)))
        is_whole = len(values.get("except", ())) == len(images.prompts(tested))
        found = search.with_exception(images, label, tested, values["except"], values["screen"]) if is_whole else label
        return _answer([found])


def _next_of_class(name: str, seen: Findings, without: biases.Without) -> str:
    # In the task `bias`.
    if not name or "text2image" in seen.withheld:
        return biases.NONE
    values, screening = seen.values, biases.screening(name, without)
    if "screen" not in values:
        return biases.NONE if seen.is_last_call else _code([], _measure("screen", screening))
    if len(values["screen"]) != len(screening):
        return biases.NONE  # some of the images failed
    contexts = biases.candidates(name, values["screen"], without)
    prompts = biases.confirmations(name, contexts, without)
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
