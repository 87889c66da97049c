"""The experimenter as a Backbone: reads the messages, decides which stage comes next, writes its code or its answer."""

import statistics
from collections.abc import Sequence

from openmaia.backbones.eyes import Eyes, Sight, bright_part
from openmaia.backbones.scripted import contexts, design, spurious
from openmaia.backbones.scripted.answers import MOST, RECOGNISED, RETAINED, Beside, answer, reach, told_apart
from openmaia.backbones.scripted.judge import Finding, Hypothesis, exemplar_evidence, finding, hypotheses, is_object
from openmaia.backbones.scripted.looking import shown
from openmaia.backbones.scripted.prompts import screen
from openmaia.backbones.scripted.transcript import Shown, Transcript, read
from openmaia.messages import Chat, Message, Reply, Role

EXEMPLARS = """\
for name in ("top", "random"):
    for rank, (activation, image) in enumerate(tools.dataset_exemplars(system, kind=name)):
        print(f"{name} {rank}: {float(activation):.5g} (percentile {activation.percentile:.0f})")
        tools.display(image.original)
        if name == "top":
            tools.display(image.masked)
"""
MEASURE = """\
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
        print(f"{stage} {{float(activation):.5g}} (percentile {{activation.percentile:.0f}}) | {{prompt}}")
        if prompt in looked_at:
            tools.display(image.original)
            tools.display(image.masked)
"""
EDIT = """\
bases = [
    {prompts},
]
orders = [
    {orders},
]
images, captions = tools.edit_images(bases, orders)
activations, images = system.call_neuron(images)
for base, order, before, after in zip(bases, orders, activations[0::2], activations[1::2]):
    print(f"edit {{float(before):.5g}} (percentile {{before.percentile:.0f}}) | {{base}} => as drawn")
    print(f"edit {{float(after):.5g}} (percentile {{after.percentile:.0f}}) | {{base}} => {{order}}")
tools.display(*images[:6])
"""

AGAIN = 12
"""Pictures of the screening that are repeated where a rule wants more experiments before nothing is claimed."""


class ScriptedBackbone:
    """seed and conversation of a request change nothing: all that is random is in the pictures."""

    def __init__(self, eyes: Eyes):
        self.eyes = eyes

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        is_viewer = chat.messages[0].role is not Role.SYSTEM
        text = self._view(chat.messages[-1]) if is_viewer else self._experiment(chat.messages)
        heard = sum(len(message.text.split()) for message in chat.messages)
        return Reply(text=text, prompt_tokens=heard, generated_tokens=len(text.split()))

    def _experiment(self, messages: Sequence[Message]) -> str:
        if len(messages) > 1 and contexts.TASK in messages[1].text:
            return contexts.reply(messages)
        seen = read(messages)
        if spurious.is_asked(messages):
            return spurious.reply(seen, messages[-1], self.eyes)
        if seen.replies > 8 + 2 * seen.sent_back or (seen.is_last_call and not seen.of("screen")):
            return _write([], answer_text="[DESCRIPTION]: NONE")
        if not seen.exemplars and "dataset_exemplars" not in seen.withheld:
            return _write([], code=EXEMPLARS)
        if "text2image" in seen.withheld:
            return _write([], answer_text=_looks_like(self._first_guesses(seen)[:1]))
        if not seen.of("screen"):
            return _write(self._first_guesses(seen), code=_measure("screen", [shot.prompt for shot in screen()]))
        candidates = hypotheses(screen(), seen.of("screen"), self._evidence(seen))
        if not candidates:
            again = _measure("screen", [shot.prompt for shot in screen()[:AGAIN]]) if seen.lacks_evidence else ""
            return _write([], code=again, answer_text="[DESCRIPTION]: NONE")
        if seen.lacks_evidence or not (seen.of("control") or seen.is_last_call):
            code = _controls(candidates, design.looked_at(candidates))
            return _write([h.name for h in candidates], code=code)
        found = _judge(seen, candidates)
        others = [e.activation for e in seen.exemplars] + [value for _, value in seen.of("control")]
        beside = self._shown_beside(seen, candidates)
        kept = answer(found, reach(seen.of("screen"), others), beside)
        if kept and not (seen.of("edit") or seen.is_last_call or "edit_images" in seen.withheld):
            return _write([f.hypothesis.name for f in kept], code=_edit(kept, candidates))
        kept = told_apart(_confirmed(kept, candidates, seen), beside)[:MOST]
        return _write([f.hypothesis.name for f in kept], answer_text=_answer_text(kept))

    def _evidence(self, seen: Transcript) -> dict[str, float]:
        top, chance = (self._sights([e for e in seen.exemplars if e.kind == kind]) for kind in ("top", "random"))
        return exemplar_evidence(top, chance)

    def _sights(self, exemplars: Sequence[Shown]) -> list[Sight]:
        """What is visible in the whole picture or in its bright part, whichever shows more of a word."""
        sights: list[Sight] = []
        for exemplar in exemplars:
            if exemplar.original is None:
                continue
            pixels = exemplar.original.pixels
            sight = self.eyes.see(pixels)
            if exemplar.masked is not None and exemplar.masked.pixels.shape == pixels.shape:
                part = bright_part(pixels, exemplar.masked.pixels)
                if part is not pixels:
                    closer = self.eyes.see(part)
                    sight = {word: max(sight[word], closer[word]) for word in sight}
            sights.append(sight)
        return sights

    def _shown_beside(self, seen: Transcript, candidates: Sequence[Hypothesis]) -> Beside:
        found: dict[str, frozenset[str]] = {}
        for hypothesis in candidates:
            own, rivals = (
                [look for prompt in dict.fromkeys(group) for look in seen.looks_at(prompt)]
                for group in design.groups(hypothesis, candidates)[:2]
            )
            if own and rivals:
                found[hypothesis.name] = shown(own, rivals, self.eyes)
        return found

    def _first_guesses(self, seen: Transcript) -> list[str]:
        evidence = self._evidence(seen)
        return [w for w, e in sorted(evidence.items(), key=lambda item: (-item[1], item[0]))[:6] if e > 0.3]

    def _view(self, message: Message) -> str:
        """describe_images and summarize_images: the words it sees most of."""
        sights = [self.eyes.see(picture.pixels) for picture in message.pictures]
        if not sights:
            return "No image was given."
        mean = {word: sum(sight[word] for sight in sights) / len(sights) for word in sights[0]}
        seen = [w for w, e in sorted(mean.items(), key=lambda item: (-item[1], item[0]))[:4] if e > 0.15]
        return f"Visible: {', '.join(seen)}." if seen else "Nothing in the vocabulary is visible."


def _judge(seen: Transcript, candidates: Sequence[Hypothesis]) -> list[Finding]:
    values: dict[str, list[float]] = {}
    for prompt, value in [*seen.of("control"), *seen.of("screen")]:
        values.setdefault(prompt, []).append(value)

    def measured(group: Sequence[str]) -> list[float]:
        return [value for prompt in dict.fromkeys(group) for value in values.get(prompt, [])]

    groups = [(h, design.groups(h, candidates)) for h in candidates]
    return [finding(h, measured(own), [measured(group) for group in controls]) for h, (own, *controls) in groups]


def _edit(kept: Sequence[Finding], candidates: Sequence[Hypothesis]) -> str:
    pairs = design.edits(kept, candidates)
    bases, orders = ([pair[side] for pair in pairs] for side in (0, 1))
    return EDIT.format(prompts=_listing(bases), orders=_listing(orders))


def _confirmed(kept: Sequence[Finding], candidates: Sequence[Hypothesis], seen: Transcript) -> list[Finding]:
    """Without objects that owe their activation to their colour, and without what edits that take it away left as active as
    it was. Of the latter the strongest stays if all would go: edits fail, too."""
    usual = statistics.median(value for _, value in seen.of("screen"))
    others = [found for found in kept if not _owes_to_colour(found, candidates, seen, usual)]
    return [found for found in others if _falls(found, candidates, seen)] or others[:1]


def _owes_to_colour(found: Finding, candidates: Sequence[Hypothesis], seen: Transcript, usual: float) -> bool:
    """An object that keeps little in any other colour. Pictures in which it was not recognised to begin with do not count."""
    if not is_object(found):
        return False
    bases = {base for base, _ in design.removals(found, candidates)}
    edits = [edit for edit in seen.edits if edit.base in bases and edit.order.startswith(design.RECOLOUR)]
    best = max((edit.before - usual for edit in edits), default=0.0)
    recognised = [edit for edit in edits if edit.before - usual > RECOGNISED * best]
    return best > 0 and all(edit.after - usual < RETAINED * (edit.before - usual) for edit in recognised)


def _falls(found: Finding, candidates: Sequence[Hypothesis], seen: Transcript) -> bool:
    """When it is taken away."""
    own = design.removals(found, candidates)
    edits = [edit for edit in seen.edits if (edit.base, edit.order) in own]
    return not edits or sum(edit.before - edit.after for edit in edits) > 0


def _controls(candidates: Sequence[Hypothesis], looked_at: Sequence[str]) -> str:
    """Each picture says which hypothesis it tests, and whether it is a control of it."""
    shots = [
        (prompt, f"not {h.name}" if at else h.name)
        for h in candidates
        for at, group in enumerate(design.groups(h, candidates))
        for prompt in group
    ]
    tests = f"tests = [\n    {_listing([test for _, test in shots])},\n]\n"
    return tests + _measure("control", [p for p, _ in shots], looked_at, ", tests[start:start + 100]")


def _measure(stage: str, wanted: Sequence[str], looked_at: Sequence[str] = (), tests: str = "") -> str:
    return MEASURE.format(stage=stage, prompts=_listing(wanted), looked_at=_listing(looked_at or [""]), tests=tests)


def _listing(items: Sequence[str]) -> str:
    return ",\n    ".join(repr(item) for item in items)


def _write(names: Sequence[str], *, code: str = "", answer_text: str = "") -> str:
    listed = "\n".join(f"{n}. {name}" for n, name in enumerate(names, start=1))
    body = f"[CODE]:\n```python\n{code}```" if code else answer_text
    return f"[HYPOTHESIS LIST]:\n{listed}\n\n{body}" if listed else body


def _looks_like(guesses: Sequence[str]) -> str:
    """All that can be said without an image of one's own."""
    if not guesses:
        return "[DESCRIPTION]: NONE"
    return f"[DESCRIPTION]: The pictures that excite the unit most show {guesses[0]}.\n[LABEL 1]: {guesses[0]}"


def _answer_text(kept: Sequence[Finding]) -> str:
    if not kept:
        return "[DESCRIPTION]: NONE"
    names = [found.hypothesis.name for found in kept]
    effects = ", ".join(f"{f.hypothesis.name}: {f.effect:+.3g} above matched controls" for f in kept)
    labels = "\n".join(f"[LABEL {n}]: {name}" for n, name in enumerate(names, start=1))
    return f"[DESCRIPTION]: The unit responds to {' and to '.join(names)} ({effects}).\n{labels}"
