"""Compares the recorded tool calls of an investigation with its evidence rule.

A call names the hypothesis that its images test by its id ("H1" of the entry "H1: dogs"), by the number of the entry in
the latest hypothesis list, or by the text of the entry.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.task import FUNCTION_WORDS, StoppingRule, Task
from openmaia.agent.vocabulary import Vocabulary, find_nearest
from openmaia.core.messages import AnswerFormat
from openmaia.runs.evidence import CheckState, Evidence, EvidenceCheck, HypothesisEvidence
from openmaia.runs.records import ImageEntry, PromptFault, ToolCall, Turn

_MEASURING = ("call_neuron", "responses")
_COMPLETED = ("ok", "lost")
_NUMBERED = re.compile(r"image-\d+|<experiment \d+>")
"""Names in an output whose numbers change when an experiment is repeated."""
ID = re.compile(r"^\W*(h\d+)\b", re.IGNORECASE)
_CONTROL = re.compile(r"^\s*not\b[\s:]*", re.IGNORECASE)
"""The start of a name such as "not H1", which marks images as negative controls."""

_WRITTEN = {"text2image": 0, "edit_images": 1}
"""The index of the argument that holds the prompts or instructions."""

MEASURED = "different experiments that measured images and ended without an exception"
_SHOWN = 120
WORDING = ("words", "drawable")
"""Demands that can be met without another experiment."""
_REWORDED = 2
"""Answers that are sent back because of their words. The next one is accepted as it is."""
_UNNAMED = "no call says which hypothesis its images test (hypothesis=…)"
_UNLISTED = "the answer does not list the hypotheses that survive"


def assess(
    rule: StoppingRule,
    turns: Sequence[Turn],
    answer: AnswerFormat,
    vocabulary: Vocabulary | None = None,
    sent_back: int = 0,
) -> Evidence:
    """Compares the turns of an investigation with a stopping rule.

    Args:
        turns: If the last reply is an answer, its labels and hypotheses are checked.
        vocabulary: None if the generator draws anything.
        sent_back: Copied to the result.

    Returns:
        The result of each check, and the measurements for each hypothesis that the answer keeps.
    """
    last = parse(turns[-1].reply, answer) if turns else None
    measured = list(_measured_images(turns))
    tested = [_tested(hypothesis, measured) for hypothesis in _surviving(measured, last, answer)]
    checks = [
        _wording_check(what, wanted, last.labels if last else (), vocabulary)
        if what in WORDING
        else _check(what, wanted, turns, last, tested, bool(measured))
        for what, wanted in rule.demands.items()
    ]
    return Evidence(checks=tuple(checks), tested=tuple(tested), sent_back=sent_back)


def find_missing_evidence(
    task: Task, turns: Sequence[Turn], vocabulary: Vocabulary | None, *, is_due: bool, is_last: bool
) -> list[EvidenceCheck]:
    """Returns the demands that the answer in the last turn does not meet; empty if it is accepted or there is none.

    Args:
        vocabulary: None if the generator draws anything.
        is_due: Whether the agent runs no more experiments, because it was asked for its answer or has reached a limit.
            Then only the number of experiments and the words of labels are checked.
        is_last: Whether the agent has no further turn. Then the words of labels are not checked.
    """
    rule, answer = task.rule, task.answer
    if not rule.demands or not turns or find_answer(turns[-1], answer) is None:
        return []

    def unmet(count: int) -> tuple[list[EvidenceCheck], list[EvidenceCheck]]:
        checks = assess(rule, turns[:count], answer, vocabulary).checks
        missing = [check for check in checks if check.state is not CheckState.MET]
        return [c for c in missing if c.what not in WORDING], [c for c in missing if c.what in WORDING]

    evidence, wording = unmet(len(turns))
    earlier = [unmet(turn.index + 1) for turn in turns[:-1] if find_answer(turn, answer) is not None]
    if is_last or sum(bool(words) for _, words in earlier) >= _REWORDED:
        wording = []
    if is_due:
        evidence = [check for check in evidence if check.what == "experiments"]
    elif any(others for others, _ in earlier) and all(check.state is CheckState.UNVERIFIED for check in evidence):
        evidence = []  # demands that cannot be verified send an answer back only once
    return [*evidence, *wording]


def find_answer(turn: Turn, answer: AnswerFormat) -> ParsedReply | None:
    """Returns the answer in the reply of a turn; None if there is none, or if it was set aside."""
    parsed = parse(turn.reply, answer)
    return parsed if not turn.code and parsed.description is not None else None


def count_answers_sent_back(turns: Sequence[Turn], answer: AnswerFormat) -> int:
    """Counts the answers before the last turn: an accepted one ends the investigation."""
    return sum(find_answer(turn, answer) is not None for turn in turns[:-1])


def experiments_that_measured(turns: Sequence[Turn]) -> int:
    """Counts the different experiments that measured an image, not drawn from a prompt of the example, and ended
    without an exception.
    """
    copied = _copied_images(turns)
    return sum(
        turn.status in _COMPLETED and not count and any(_measured_own_image(call, copied) for call in turn.calls)
        for turn, count in zip(turns, _times_before(turns), strict=True)
    )


def repetitions(turns: Sequence[Turn]) -> list[bool]:
    """Returns for each turn whether its experiment repeats an earlier one, or copies the example in the instructions.

    - An experiment that made images is a repetition if two earlier ones have the same code, prompts or instructions,
      and edited images. One is no reason, because every run makes new images.
    - One that made none, or raised an exception, is a repetition if an earlier one has the same code and output.
    - One that ended otherwise, such as by a timeout, is none, because another try may succeed.
    - An experiment copies the example if it only makes images of prompts in it, and at most measures these.
    """
    return [
        _is_copy(turn) or _is_repeated(turn, count) for turn, count in zip(turns, _times_before(turns), strict=True)
    ]


def _is_repeated(turn: Turn, times_before: int) -> bool:
    if turn.status == "ok":
        return times_before > (1 if _made(turn) else 0)
    return turn.raised and times_before > 0


def _is_copy(turn: Turn) -> bool:
    made = [words for _, words in _made_images([turn])]
    copied = _copied_images([turn])
    is_more = any(call.name == "dataset_exemplars" or _measured_own_image(call, copied) for call in turn.calls)
    return turn.status == "ok" and bool(made) and all(words is None for words in made) and not is_more


def _times_before(turns: Sequence[Turn]) -> list[int]:
    seen = Counter[tuple[str, ...]]()
    counts: list[int] = []
    for turn in turns:
        experiment = _experiment(turn)
        counts.append(seen[experiment])
        if turn.code:
            seen[experiment] += 1
    return counts


def _experiment(turn: Turn) -> tuple[str, ...]:
    """Returns a key that is equal for turns with the same experiment."""
    made = _made(turn)
    # The output of an experiment that makes images is never the same, so what it asked for is compared.
    if turn.status == "ok" and made:
        prompts = (str(json.loads(call.arguments)[_WRITTEN[call.name]]) for call in made)
        edited = (entry.original for call in made if call.name == "edit_images" for entry in call.entries[::2])
        return (turn.code.strip(), *prompts, *edited)
    parts = (_NUMBERED.sub("", part) if isinstance(part, str) else part.digest for part in turn.observation)
    return (turn.code.strip(), *parts)


def _made(turn: Turn) -> list[ToolCall]:
    return [call for call in turn.calls if call.name in _WRITTEN and call.error is None]


def _copied_images(turns: Sequence[Turn]) -> frozenset[str]:
    """Returns the digests of the images whose prompts were copied from the example in the instructions."""
    return frozenset(entry.original for entry, words in _made_images(turns) if words is None)


def _measured_own_image(call: ToolCall, copied: frozenset[str]) -> bool:
    is_measurement = call.name in _MEASURING and call.error is None
    return is_measurement and (call.name == "responses" or any(entry.original not in copied for entry in call.entries))


def _check(
    what: str,
    wanted: int,
    turns: Sequence[Turn],
    last: ParsedReply | None,
    tested: Sequence[HypothesisEvidence],
    any_measured: bool,
) -> EvidenceCheck:
    """Checks one demand. `any_measured` says whether any call named the hypothesis that its images test."""
    if what == "experiments":
        return _counted(what, wanted, experiments_that_measured(turns), MEASURED)
    if last is None or not last.description:
        return EvidenceCheck(what=what, wanted=wanted, found=0, state=CheckState.MET, detail="nothing was claimed")
    if what == "labels":
        return _labels_check(wanted, turns, last.labels)
    if not tested or not any_measured:
        why = _UNLISTED if not tested else _UNNAMED
        return EvidenceCheck(what=what, wanted=wanted, found=0, state=CheckState.UNVERIFIED, detail=f"{what}: {why}")
    counts = [one.controls if what == "controls" else one.images for one in tested]
    # The demand holds for each hypothesis, so the one with the fewest images decides.
    least = counts.index(min(counts))
    kind = "different negative controls" if what == "controls" else "different images"
    return _counted(what, wanted, counts[least], f"{kind} of {tested[least].hypothesis!r}")


def _wording_check(what: str, wanted: int, labels: Sequence[str], vocabulary: Vocabulary | None) -> EvidenceCheck:
    if what == "words":
        found = max((len(label.split()) for label in labels), default=0)
        faults = [
            f"a label has {len(label.split())} words, {wanted} at most are expected: {label[:_SHOWN]!r} (name one thing only; "
            "further ones are labels of their own, and the rest belongs into the description)"
            for label in labels
            if len(label.split()) > wanted
        ]
    else:
        faults = [] if vocabulary is None else [fault for each in labels if (fault := _not_drawn(each, vocabulary))]
        found = int(not faults)
    state = CheckState.MISSING if faults else CheckState.MET
    met = "each label is short" if what == "words" else "each label can be drawn"
    return EvidenceCheck(what=what, wanted=wanted, found=found, state=state, detail="\n- ".join(faults) or met)


def _not_drawn(label: str, vocabulary: Vocabulary) -> str:
    """Returns what to tell the agent about a label that cannot be drawn; empty if it can be drawn."""
    missing = vocabulary.missing(label)
    if not missing:
        return ""
    near = find_nearest(label, vocabulary.words)
    words = f"the nearest words that can: {', '.join(near)}" if near else "choose among the words in your instructions"
    return f"the label {label[:_SHOWN]!r} cannot be drawn ({', '.join(missing)[:_SHOWN]}), so that no image could test it; {words}"


def _labels_check(wanted: int, turns: Sequence[Turn], labels: Sequence[str]) -> EvidenceCheck:
    words = frozenset[str]().union(*_measured_words(turns))
    untested = [label for label in labels if not _content_words(label) & words]
    named = ", ".join(repr(label) for label in untested)
    return EvidenceCheck(
        what="labels",
        wanted=wanted,
        found=0 if untested else wanted,
        state=CheckState.UNVERIFIED if untested else CheckState.MET,
        detail=f"no experiment generated and measured images of {named}" if untested else "each label was measured",
    )


def _made_images(turns: Sequence[Turn]) -> Iterator[tuple[ImageEntry, frozenset[str] | None]]:
    """Yields each generated or edited image with the words that could be drawn; None in their place if the prompt was
    copied from the example.
    """
    for call in (call for turn in turns for call in _made(turn)):
        missing = {note.prompt: " ".join(note.words) for note in call.notes if note.fault is PromptFault.NOT_DRAWN}
        copied = {note.prompt for note in call.notes if note.fault is PromptFault.COPIED}
        entries = call.entries if call.name == "text2image" else call.entries[1::2]
        for entry, text in zip(entries, json.loads(call.arguments)[_WRITTEN[call.name]], strict=False):
            yield entry, None if text in copied else _content_words(text) - _content_words(missing.get(text, ""))


def list_words_not_drawn(turns: Sequence[Turn]) -> list[str]:
    """Returns the words of prompts that could not be drawn, without duplicates."""
    calls = [call for turn in turns for call in turn.calls]
    return list(dict.fromkeys(word for call in calls for note in call.notes for word in note.words))


def _measured_words(turns: Sequence[Turn]) -> Iterator[frozenset[str]]:
    """Yields the words of the prompt or instruction of each measured image, and of the hypothesis that it tests."""
    copied = _copied_images(turns)
    made = {entry.id: words or frozenset() for entry, words in _made_images(turns)}
    for call in (call for turn in turns for call in turn.calls if call.name in _MEASURING and call.error is None):
        yield from (made[id] for image in json.loads(call.arguments)[0] if (id := image.get("image")) in made)
        yield from (_content_words(entry.hypothesis) for entry in call.entries if entry.original not in copied)


def _content_words(text: str) -> frozenset[str]:
    words = {word.removesuffix("s") for word in re.findall(r"\w+", text.casefold())}
    return frozenset(words - FUNCTION_WORDS)


def _counted(what: str, wanted: int, count: int, kind: str) -> EvidenceCheck:
    state = CheckState.MET if count >= wanted else CheckState.MISSING
    return EvidenceCheck(what=what, wanted=wanted, found=count, state=state, detail=f"{count} of {wanted} {kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredImage:
    hypothesis: str
    """The key, see `_key`."""
    is_control: bool
    entry: ImageEntry


def _measured_images(turns: Sequence[Turn]) -> Iterator[_MeasuredImage]:
    listed, copied = tuple[str, ...](), _copied_images(turns)
    for turn, is_repeated in zip(turns, repetitions(turns), strict=True):
        # The agent does not see a repeated turn again, nor the list in it.
        listed = listed if is_repeated else turn.hypotheses or listed
        for call in turn.calls:
            for entry in call.entries if call.name == "call_neuron" else ():
                if entry.hypothesis and entry.original not in copied:
                    name, negated = _CONTROL.subn("", entry.hypothesis)
                    yield _MeasuredImage(hypothesis=_key_of(name, listed), is_control=bool(negated), entry=entry)


def _tested(hypothesis: str, measured: Sequence[_MeasuredImage]) -> HypothesisEvidence:
    own, controls = (
        {m.entry.original: m.entry for m in measured if m.hypothesis == _key(hypothesis) and m.is_control is is_control}
        for is_control in (False, True)
    )
    return HypothesisEvidence(
        hypothesis=hypothesis,
        images=len(own),
        controls=len(controls),
        mean=_mean(list(own.values())),
        control_mean=_mean(list(controls.values())),
    )


def _surviving(measured: Sequence[_MeasuredImage], last: ParsedReply | None, answer: AnswerFormat) -> list[str]:
    """Returns the hypotheses that the answer keeps: its list, or without one its labels, if a call named one of them."""
    if last is None or not last.description:
        return []
    if last.hypotheses:
        return list({_key(entry): entry for entry in last.hypotheses}.values())
    named = {image.hypothesis for image in measured}
    return [] if answer.choices or not named & {_key(label) for label in last.labels} else list(last.labels)


def _key_of(name: str, listed: Sequence[str]) -> str:
    number = int(name) if re.fullmatch(r"\d{1,3}", name.strip()) else 0
    return _key(listed[number - 1]) if 1 <= number <= len(listed) else _key(name)


def _key(entry: str) -> str:
    """Returns the id of a hypothesis in lower case, or its words if it has none."""
    match = ID.match(entry)
    return match[1].casefold() if match else " ".join(re.findall(r"\w+", entry.casefold()))


def _mean(entries: Sequence[ImageEntry]) -> float | None:
    values = [float(entry.activation["value"]) for entry in entries if entry.activation is not None]
    return float(f"{sum(values) / len(values):.5g}") if values else None
