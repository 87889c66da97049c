"""Compares what an investigation measured with its evidence rule.

A call names the hypothesis that its images test by its id ("H1" of the entry "H1: dogs"), by the number of the entry in
the latest hypothesis list, or by the text of the entry.
"""

import re
from collections.abc import Mapping, Sequence

from openmaia.agent.evidence.experiments import (
    content_words,
    count_measuring,
    examine,
    find_copied,
    find_measured_words,
)
from openmaia.agent.tasks.grammar import ParsedReply, parse
from openmaia.agent.tasks.task import StoppingRule, Task
from openmaia.agent.vocabulary import Vocabulary, find_nearest
from openmaia.core.messages import AnswerFormat
from openmaia.runs.evidence import CheckState, Evidence, EvidenceCheck, HypothesisEvidence
from openmaia.runs.records import Did, ImageEntry, Turn

ID = re.compile(r"^\W*(h\d+)\b", re.IGNORECASE)
MEASURED = "different experiments that measured images and ended without an exception"
WORDING = ("words", "drawable")
"""Demands that can be met without another experiment."""
_SHOWN = 120
_REWORDED = 2
"""Answers that are sent back because of their words. The next one is accepted as it is."""
_UNNAMED = "no call says which hypothesis its images test (hypothesis=…)"
_UNLISTED = "the answer does not list the hypotheses that survive"

ImagesByHypothesis = Mapping[tuple[str, bool], Mapping[str, ImageEntry]]
"""By hypothesis (see `hypothesis_key`) and whether they are negative controls, the measured images by digest."""


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
    measured = find_measured_images(turns)
    tested = find_tested(measured, last, answer)
    checks: list[EvidenceCheck] = []
    for what, wanted in rule.demands.items():
        if what in WORDING:
            checks.append(_wording_check(what, wanted, last.labels if last else (), vocabulary))
        elif what == "experiments":
            checks.append(_counted(what, wanted, count_measuring(turns), MEASURED))
        elif last is None or not last.description:
            checks.append(_check(what, wanted, 0, CheckState.MET, "nothing was claimed"))
        elif what == "labels":
            checks.append(_labels_check(wanted, turns, last.labels))
        else:
            checks.append(_images_check(what, wanted, tested, measured))
    return Evidence(checks=tuple(checks), tested=tuple(tested), sent_back=sent_back)


def find_tested(
    measured: ImagesByHypothesis, last: ParsedReply | None, answer: AnswerFormat
) -> list[HypothesisEvidence]:
    """Returns the measurements for each hypothesis that the last reply keeps, given those of `find_measured_images`."""
    return [_tested(hypothesis, measured) for hypothesis in _surviving(measured, last, answer)]


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


def _check(what: str, wanted: int, found: int, state: CheckState, detail: str) -> EvidenceCheck:
    return EvidenceCheck(what=what, wanted=wanted, found=found, state=state, detail=detail)


def _counted(what: str, wanted: int, count: int, kind: str) -> EvidenceCheck:
    state = CheckState.MET if count >= wanted else CheckState.MISSING
    return _check(what, wanted, count, state, f"{count} of {wanted} {kind}")


def _images_check(
    what: str, wanted: int, tested: Sequence[HypothesisEvidence], measured: ImagesByHypothesis
) -> EvidenceCheck:
    if not tested or not measured:
        return _check(what, wanted, 0, CheckState.UNVERIFIED, f"{what}: {_UNNAMED if tested else _UNLISTED}")
    counts = [one.controls if what == "controls" else one.images for one in tested]
    # The demand holds for each hypothesis, so the one with the fewest images decides.
    least = counts.index(min(counts))
    kind = "different negative controls" if what == "controls" else "different images"
    return _counted(what, wanted, counts[least], f"{kind} of {tested[least].hypothesis!r}")


def _labels_check(wanted: int, turns: Sequence[Turn], labels: Sequence[str]) -> EvidenceCheck:
    words = find_measured_words(turns)
    untested = ", ".join(repr(label) for label in labels if not content_words(label) & words)
    if not untested:
        return _check("labels", wanted, wanted, CheckState.MET, "each label was measured")
    detail = f"no experiment generated and measured images of {untested}"
    return _check("labels", wanted, 0, CheckState.UNVERIFIED, detail)


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
    met = "each label is short" if what == "words" else "each label can be drawn"
    return _check(what, wanted, found, CheckState.MISSING if faults else CheckState.MET, "\n- ".join(faults) or met)


def _not_drawn(label: str, vocabulary: Vocabulary) -> str:
    """Returns what to tell the agent about a label that cannot be drawn; empty if it can be drawn."""
    missing = vocabulary.missing(label)
    if not missing:
        return ""
    near = find_nearest(label, vocabulary.words)
    words = f"the nearest words that can: {', '.join(near)}" if near else "choose among the words in your instructions"
    return f"the label {label[:_SHOWN]!r} cannot be drawn ({', '.join(missing)[:_SHOWN]}), so that no image could test it; {words}"


def find_measured_images(turns: Sequence[Turn]) -> ImagesByHypothesis:
    """Returns the images that calls measured for a hypothesis, without those of prompts copied from the example."""
    measured: dict[tuple[str, bool], dict[str, ImageEntry]] = {}
    listed, copied = tuple[str, ...](), find_copied(turns)
    for turn, facts in zip(turns, examine(turns), strict=True):
        # The agent does not see a repeated turn again, nor the list in it.
        listed = listed if facts.is_repeated else turn.hypotheses or listed
        for entry in (entry for call in turn.calls for entry in call.entries if entry.did is Did.MEASURED):
            if entry.hypothesis and entry.original not in copied:
                measured.setdefault((_key_of(entry.tested, listed), entry.is_control), {})[entry.original] = entry
    return measured


def _tested(hypothesis: str, measured: ImagesByHypothesis) -> HypothesisEvidence:
    own, controls = (measured.get((hypothesis_key(hypothesis), is_control), {}) for is_control in (False, True))
    return HypothesisEvidence(
        hypothesis=hypothesis,
        images=len(own),
        controls=len(controls),
        mean=_mean(own),
        control_mean=_mean(controls),
    )


def _surviving(measured: ImagesByHypothesis, last: ParsedReply | None, answer: AnswerFormat) -> list[str]:
    """Returns the hypotheses that the answer keeps: its list, or without one its labels, if a call named one of them."""
    if last is None or not last.description:
        return []
    if last.hypotheses:
        return list({hypothesis_key(entry): entry for entry in last.hypotheses}.values())
    named = {hypothesis for hypothesis, _ in measured}
    return [] if answer.choices or not named & {hypothesis_key(label) for label in last.labels} else list(last.labels)


def _key_of(name: str, listed: Sequence[str]) -> str:
    number = int(name) if re.fullmatch(r"\d{1,3}", name.strip()) else 0
    return hypothesis_key(listed[number - 1]) if 1 <= number <= len(listed) else hypothesis_key(name)


def hypothesis_key(entry: str) -> str:
    """Returns the id of a hypothesis in lower case, or its words if it has none."""
    match = ID.match(entry)
    return match[1].casefold() if match else " ".join(re.findall(r"\w+", entry.casefold()))


def _mean(images: Mapping[str, ImageEntry]) -> float | None:
    values = [float(entry.activation["value"]) for entry in images.values() if entry.activation is not None]
    return float(f"{sum(values) / len(values):.5g}") if values else None
