"""How an investigation stands against its stopping rule, read off recorded calls alone.

A hypothesis goes by the name that calls give it: an id in front of its entry in the hypothesis list ("H1: dogs"), the
number of the entry in the list of that message, or its words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmaia.store.evidence import Check, Evidence, State, Tested
from openmaia.store.records import ImageEntry, Turn
from openmaia.tasks.grammar import Answer, Parsed, parse
from openmaia.tasks.rule import Rule

MEASURING = ("call_neuron", "responses")
ID = re.compile(r"^\W*(h\d+)\b", re.IGNORECASE)
CONTROL = re.compile(r"^\s*not\b[\s:]*", re.IGNORECASE)

UNNAMED = "no call says which hypothesis its images test (hypothesis=…)"
UNLISTED = "the answer does not list the hypotheses that survive"


def assess(rule: Rule, turns: Sequence[Turn], answer: Answer, sent_back: int = 0) -> Evidence:
    """Of everything up to and including the last turn, whose reply is taken for the answer where it is one."""
    last = parse(turns[-1].reply, answer) if turns else None
    tested = _tested(turns, _surviving(turns, last, answer))
    checks = tuple(_check(what, wanted, turns, last, tested) for what, wanted in rule.demands.items())
    return Evidence(checks=checks, tested=tuple(tested), sent_back=sent_back)


def refused(rule: Rule, turns: Sequence[Turn], answer: Answer, soft_turns: int) -> list[Check]:
    """What the answer in the last turn lacks, empty where it is taken: from the turn on in which the agent is asked for
    its answer, any is. What cannot be checked is asked for once."""
    if not rule.demands or not turns or len(turns) >= soft_turns or not _answers(turns[-1], answer):
        return []
    wanting = [check for check in assess(rule, turns, answer).checks if check.state is not State.MET]
    asked = any(_answers(turn, answer) for turn in turns[:-1])
    return [] if asked and all(check.state is State.UNVERIFIED for check in wanting) else wanting


def sent_back(turns: Sequence[Turn], answer: Answer) -> int:
    """Answers that were not the end."""
    return sum(_answers(turn, answer) for turn in turns[:-1])


def said(checks: Sequence[Check]) -> str:
    """For the agent: a line for each."""
    return "\n".join(f"- {check.detail}" for check in checks)


def _answers(turn: Turn, answer: Answer) -> bool:
    return not turn.code and parse(turn.reply, answer).description is not None


def _check(what: str, wanted: int, turns: Sequence[Turn], last: Parsed | None, tested: Sequence[Tested]) -> Check:
    if what == "experiments":
        found = sum(any(call.name in MEASURING and call.error is None for call in turn.calls) for turn in turns)
        detail = f"{found} of {wanted} experiments that showed images to the unit"
        return _counted(what, wanted, found, detail)
    if last is not None and last.description == "":
        return Check(what=what, wanted=wanted, found=0, state=State.MET, detail="nothing was claimed")
    if not tested or not any(turn_tags(turns)):
        why = UNLISTED if not tested else UNNAMED
        return Check(what=what, wanted=wanted, found=0, state=State.UNVERIFIED, detail=f"{what}: {why}")
    least = min(tested, key=lambda one: one.controls if what == "controls" else one.images)
    found = least.controls if what == "controls" else least.images
    named = "different negative controls" if what == "controls" else "different images"
    return _counted(what, wanted, found, f"{found} of {wanted} {named} of {least.hypothesis!r}")


def _counted(what: str, wanted: int, found: int, detail: str) -> Check:
    state = State.MET if found >= wanted else State.MISSING
    return Check(what=what, wanted=wanted, found=found, state=state, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tag:
    """key: of a hypothesis, equal for equal ones."""

    key: str
    is_control: bool
    entry: ImageEntry


def turn_tags(turns: Sequence[Turn]) -> Iterator[_Tag]:
    """Every image that was measured for a hypothesis."""
    listed: tuple[str, ...] = ()
    for turn in turns:
        listed = turn.hypotheses or listed
        for call in turn.calls:
            for entry in call.entries if call.name == "call_neuron" else ():
                if entry.hypothesis:
                    name, negated = CONTROL.subn("", entry.hypothesis)
                    yield _Tag(key=_meant(name, listed), is_control=bool(negated), entry=entry)


def _tested(turns: Sequence[Turn], surviving: Sequence[str]) -> list[Tested]:
    tags = list(turn_tags(turns))
    found: list[Tested] = []
    for entry in surviving:
        own, controls = ({t.entry.original: t.entry for t in tags if t.key == _key(entry) and t.is_control is is_control}
                         for is_control in (False, True))  # fmt: skip
        found.append(
            Tested(
                hypothesis=entry,
                images=len(own),
                controls=len(controls),
                mean=_mean(list(own.values())),
                control_mean=_mean(list(controls.values())),
            )
        )
    return found


def _surviving(turns: Sequence[Turn], last: Parsed | None, answer: Answer) -> list[str]:
    """Entries of the answer's hypothesis list; where it has none, its labels, if calls have named any of them."""
    if last is None or not last.description:
        return []
    if last.hypotheses:
        return list({_key(entry): entry for entry in last.hypotheses}.values())
    named = {tag.key for tag in turn_tags(turns)}
    return [] if answer.choices or not named & {_key(label) for label in last.labels} else list(last.labels)


def _meant(name: str, listed: Sequence[str]) -> str:
    """The key of the hypothesis that a call names."""
    number = int(name) if re.fullmatch(r"\d{1,3}", name.strip()) else 0
    return _key(listed[number - 1]) if 1 <= number <= len(listed) else _key(name)


def _key(entry: str) -> str:
    found = ID.match(entry)
    return found[1].casefold() if found else " ".join(re.findall(r"\w+", entry.casefold()))


def _mean(entries: Sequence[ImageEntry]) -> float | None:
    values = [float(entry.activation["value"]) for entry in entries if entry.activation is not None]
    return float(f"{sum(values) / len(values):.5g}") if values else None
