"""The scripted experimenter as a backbone: it reads the messages, selects a stage, and writes code or the answer."""

import statistics
from collections.abc import Sequence

from openmaia.core.messages import Chat, Message, Reply, Role
from openmaia.offline.experimenter import contexts, design, spurious
from openmaia.offline.experimenter.answers import (
    MOST_LABELS,
    RECOGNISED,
    RETAINED,
    ShownBeside,
    answer,
    reach,
    told_apart,
)
from openmaia.offline.experimenter.design import Hypothesis, screen
from openmaia.offline.experimenter.eyes import Eyes, Sight, bright_part
from openmaia.offline.experimenter.judge import (
    HypothesisResult,
    Measurements,
    exemplar_evidence,
    hypotheses,
    hypotheses_of_bank,
    result,
)
from openmaia.offline.experimenter.transcript import SeenExemplar, Transcript, read

_EXEMPLARS = f"""\
{spurious.LOOK}        if name == "top":
            tools.display(image.masked)
"""
# The code prints the logit of a class if there is one, because probabilities near 0 or 1 hide differences.
_SHOWN = """\
def shown(activation):
    if activation.raw is None:
        return f"{float(activation):.5g} (percentile {activation.percentile})"
    return f"{activation.raw:.5g} (logit)"

"""
_MEASURE = """\
prompts = [
    {prompts},
]
looked_at = {{
    {looked_at},
}}
for start in range(0, len(prompts), 100):
    part = prompts[start:start + 100]
    activations, images = system.call_neuron(tools.text2image(part{tests}))
    for prompt, activation, image in zip(part, activations, images):
        print(f"{stage} {{shown(activation)}} | {{prompt}}")
        if prompt in looked_at:
            tools.display(image.original)
            tools.display(image.masked)
"""
_EDIT = """\
bases = [
    {prompts},
]
orders = [
    {orders},
]
images, captions = tools.edit_images(bases, orders)
activations, images = system.call_neuron(images)
for base, order, before, after in zip(bases, orders, activations[0::2], activations[1::2]):
    print(f"edit {{shown(before)}} | {{base}} => as drawn")
    print(f"edit {{shown(after)}} | {{base}} => {{order}}")
tools.display(*images[:6])
"""
_NONE = "[DESCRIPTION]: NONE"

# Images of the screening that are measured, again or with a bank for the first time, if an abstention was sent back for lack
# of experiments.
_REPEATED = 12
# Hypotheses of the bank whose controls are one experiment. An abstention needs two.
_AT_ONCE = 4


class ScriptedBackbone:
    """The scripted experimenter.

    It ignores the seed of a request, because its replies are not random. It also answers requests to describe images
    (those without a system prompt) with the words that it detects in them.
    """

    def __init__(self, eyes: Eyes):
        self._eyes = eyes

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        is_viewer = chat.messages[0].role is not Role.SYSTEM
        text = self._view(chat.messages[-1]) if is_viewer else self._experiment(chat.messages)
        prompt_words = sum(len(message.text.split()) for message in chat.messages)
        return Reply(text=text, prompt_tokens=prompt_words, generated_tokens=len(text.split()))

    def _experiment(self, messages: Sequence[Message]) -> str:
        if len(messages) > 1 and contexts.TASK in messages[1].text:
            return contexts.reply(messages)
        seen = read(messages)
        if spurious.is_task(messages):
            return spurious.reply(seen, messages[-1], self._eyes)
        has_measured = bool(seen.of("screen") or seen.of("control"))
        if seen.replies > 8 + 2 * seen.sent_back or (seen.is_last_call and not has_measured):
            return _write([], answer_text=_NONE)
        if not seen.exemplars and "dataset_exemplars" not in seen.withheld:
            return _write([], code=_EXEMPLARS)
        if "text2image" in seen.withheld:
            return _write([], answer_text=_looks_like(self._guesses_without_images(seen)))
        if begun := hypotheses_of_bank(seen.bank, self._evidence(seen)):
            return self._test_bank(seen, begun)
        if not seen.of("screen"):
            return _write(self._first_guesses(seen), code=_measure("screen", [each.prompt for each in screen()]))
        candidates = hypotheses(screen(), seen.of("screen"), self._evidence(seen))
        if not candidates:
            again = _measure("screen", [each.prompt for each in screen()[:_REPEATED]]) if seen.lacks_evidence else ""
            return _write([], code=again, answer_text=_NONE)
        if seen.lacks_evidence or not (seen.of("control") or seen.is_last_call):
            return _write([h.name for h in candidates], code=_controls(candidates, candidates))
        return self._conclude(seen, candidates, seen.of("screen"))

    def _test_bank(self, seen: Transcript, candidates: Sequence[Hypothesis]) -> str:
        # The bank took the place of the screening, so that the control images are what is usual.
        measured = {prompt for prompt, _ in seen.measured.get("control", [])}
        left = [each for each in candidates if not measured.issuperset(design.groups(each, candidates)[0])]
        if left and not seen.is_last_call:
            some = left[:_AT_ONCE]
            return _write([each.name for each in some], code=_controls(some, candidates))
        if seen.lacks_evidence:
            return _write([], code=_measure("screen", [each.prompt for each in screen()[:_REPEATED]]))
        own = {prompt for each in candidates for prompt in design.groups(each, candidates)[0]}
        usual = [(prompt, value) for prompt, value in seen.of("control") if prompt not in own]
        return self._conclude(seen, candidates, usual) if usual else _write([], answer_text=_NONE)

    def _conclude(self, seen: Transcript, candidates: Sequence[Hypothesis], usual: Measurements) -> str:
        others = [value for _, value in seen.of("control")]
        if not seen.has_logits:  # the activations of exemplars are probabilities
            others += [exemplar.activation for exemplar in seen.exemplars]
        beside = self._shown_beside(seen, candidates)
        results = [each for each in _results(seen, candidates) if each.hypothesis.name not in seen.refuted]
        kept = answer(results, reach(usual, others), beside)
        if kept and not (seen.of("edit") or seen.is_last_call or "edit_images" in seen.withheld):
            return _write([r.hypothesis.name for r in kept], code=_edit(kept, candidates))
        kept = told_apart(_confirmed(kept, candidates, seen, usual), beside)[:MOST_LABELS]
        return _write([r.hypothesis.name for r in kept], answer_text=_answer_text(kept))

    def _evidence(self, seen: Transcript) -> dict[str, float]:
        top, random = (self._sights([e for e in seen.exemplars if e.kind == kind]) for kind in ("top", "random"))
        return exemplar_evidence(top, random)

    def _sights(self, exemplars: Sequence[SeenExemplar]) -> list[Sight]:
        # The larger value of the whole image and of the part where the unit responds counts.
        sights: list[Sight] = []
        for exemplar in exemplars:
            if exemplar.original is None:
                continue
            pixels = exemplar.original.pixels
            sight = self._eyes.see(pixels)
            if exemplar.masked is not None and exemplar.masked.pixels.shape == pixels.shape:
                part = bright_part(pixels, exemplar.masked.pixels)
                if part is not pixels:
                    closer = self._eyes.see(part)
                    sight = {word: max(sight[word], closer[word]) for word in sight}
            sights.append(sight)
        return sights

    def _shown_beside(self, seen: Transcript, candidates: Sequence[Hypothesis]) -> ShownBeside:
        beside: dict[str, frozenset[str]] = {}
        for hypothesis in candidates:
            own, controls = (
                [view for prompt in dict.fromkeys(group) for view in seen.views_of(prompt)]
                for group in design.groups(hypothesis, candidates)[:2]
            )
            if own and controls:
                beside[hypothesis.name] = self._eyes.shown_beside(own, controls)
        return beside

    def _first_guesses(self, seen: Transcript) -> list[str]:
        return _strongest(self._evidence(seen), 6, 0.3)

    def _guesses_without_images(self, seen: Transcript) -> list[str]:
        # What the exemplars show, or else the best word of the bank.
        of_bank = [each.name for each in hypotheses_of_bank(seen.bank, {})]
        left = ([each for each in some if each not in seen.refuted] for some in (self._first_guesses(seen), of_bank))
        return next(filter(None, left), [])

    def _view(self, message: Message) -> str:
        sights = [self._eyes.see(image.pixels) for image in message.images]
        if not sights:
            return "No image was given."
        mean = {word: sum(sight[word] for sight in sights) / len(sights) for word in sights[0]}
        visible = _strongest(mean, 4, 0.15)
        return f"Visible: {', '.join(visible)}." if visible else "Nothing in the vocabulary is visible."


def _strongest(evidence: Sight, count: int, least: float) -> list[str]:
    ranked = sorted(evidence, key=lambda word: (-evidence[word], word))
    return [word for word in ranked[:count] if evidence[word] > least]


def _results(seen: Transcript, candidates: Sequence[Hypothesis]) -> list[HypothesisResult]:
    values: dict[str, list[float]] = {}
    for prompt, value in [*seen.of("control"), *seen.of("screen")]:
        values.setdefault(prompt, []).append(value)

    def measured(group: Sequence[str]) -> list[float]:
        return [value for prompt in dict.fromkeys(group) for value in values.get(prompt, [])]

    groups = [(h, design.groups(h, candidates)) for h in candidates]
    return [result(h, measured(own), [measured(group) for group in controls]) for h, (own, *controls) in groups]


def _confirmed(
    kept: Sequence[HypothesisResult], candidates: Sequence[Hypothesis], seen: Transcript, usual: Measurements
) -> list[HypothesisResult]:
    # If removal lowers the activation for no concept, the strongest one stays, because edits may fail.
    middle = statistics.median(value for _, value in usual)
    others = [r for r in kept if not _owes_to_colour(r, candidates, seen, middle)]
    return [r for r in others if _falls(r, candidates, seen)] or others[:1]


def _owes_to_colour(r: HypothesisResult, candidates: Sequence[Hypothesis], seen: Transcript, usual: float) -> bool:
    # So it is if every edit of its colour leaves less than RETAINED of the activation above `usual`, the median of
    # images that are compared.
    if not r.is_object:
        return False
    bases = {base for base, _ in design.removals(r.hypothesis, candidates)}
    edits = [edit for edit in seen.edits if edit.base in bases and edit.order.startswith(design.RECOLOUR)]
    best = max((edit.before - usual for edit in edits), default=0.0)
    recognised = [edit for edit in edits if edit.before - usual > RECOGNISED * best]
    return best > 0 and all(edit.after - usual < RETAINED * (edit.before - usual) for edit in recognised)


def _falls(r: HypothesisResult, candidates: Sequence[Hypothesis], seen: Transcript) -> bool:
    removals = design.removals(r.hypothesis, candidates)
    edits = [edit for edit in seen.edits if (edit.base, edit.order) in removals]
    return not edits or sum(edit.before - edit.after for edit in edits) > 0


def _controls(tested: Sequence[Hypothesis], candidates: Sequence[Hypothesis]) -> str:
    # The code marks each image with the name of the hypothesis that it tests, or with `not NAME` if it is a control.
    shots = [
        (prompt, f"not {h.name}" if number else h.name)
        for h in tested
        for number, group in enumerate(design.groups(h, candidates))
        for prompt in group
    ]
    tests = f"tests = [\n    {_listing([test for _, test in shots])},\n]\n"
    looked_at = design.looked_at(candidates)
    return tests + _measure("control", [prompt for prompt, _ in shots], looked_at, ", tests[start:start + 100]")


def _measure(stage: str, prompts: Sequence[str], looked_at: Sequence[str] = (), tests: str = "") -> str:
    return _SHOWN + _MEASURE.format(
        stage=stage, prompts=_listing(prompts), looked_at=_listing(looked_at or [""]), tests=tests
    )


def _edit(kept: Sequence[HypothesisResult], candidates: Sequence[Hypothesis]) -> str:
    pairs = design.edits([r.hypothesis for r in kept], candidates)
    return _SHOWN + _EDIT.format(
        prompts=_listing([base for base, _ in pairs]), orders=_listing([order for _, order in pairs])
    )


def _listing(items: Sequence[str]) -> str:
    return ",\n    ".join(repr(item) for item in items)


def _write(names: Sequence[str], *, code: str = "", answer_text: str = "") -> str:
    listed = "\n".join(f"{n}. {name}" for n, name in enumerate(names, start=1))
    body = f"[CODE]:\n```python\n{code}```" if code else answer_text
    return f"[HYPOTHESIS LIST]:\n{listed}\n\n{body}" if listed else body


def _looks_like(guesses: Sequence[str]) -> str:
    # No image can be generated.
    if not guesses:
        return _NONE
    return f"[DESCRIPTION]: The pictures that excite the unit most show {guesses[0]}.\n[LABEL 1]: {guesses[0]}"


def _answer_text(kept: Sequence[HypothesisResult]) -> str:
    if not kept:
        return _NONE
    names = [r.hypothesis.name for r in kept]
    effects = ", ".join(f"{r.hypothesis.name}: {r.effect:+.3g} above matched controls" for r in kept)
    labels = "\n".join(f"[LABEL {n}]: {name}" for n, name in enumerate(names, start=1))
    return f"[DESCRIPTION]: The unit responds to {' and to '.join(names)} ({effects}).\n{labels}"
