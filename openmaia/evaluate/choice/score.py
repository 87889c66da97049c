"""From answers to a share: how often the first method's text was chosen over the second's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmaia.errors import UsageError
from openmaia.evaluate import bootstrap
from openmaia.evaluate.bootstrap import Group, Interval
from openmaia.evaluate.choice.blind import Key
from openmaia.evaluate.statistics import wilson
from openmaia.units import Unit

LARGEST = 4_000_000
"""Bytes of a file of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """By one person, or one model. chosen: question -> 1 or 2, whichever was shown first or second. asked: how many were
    put; cause: why some have no answer."""

    page: str
    who: str
    chosen: Mapping[str, int]
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """share: of choices for the first method, with the wider of two 95 % intervals, the bootstrap over people and units
    crossed and Wilson's over units: questions about one unit are no independent trials. same: share of pairs answered alike
    in both orders, None where none was answered twice. first: share of choices that fell on what stood first."""

    methods: tuple[str, str]
    share: Interval
    units: int
    answered: int
    asked: int
    who: tuple[str, ...]
    same: float | None
    first: float


Found = dict[Unit, list[tuple[str, int, int]]]
"""(who, replicate, method chosen) of each unit."""


def read(data: bytes, name: str) -> Answers:
    """A file that the page saved, or the text it showed. name: of the file, for its messages and for who left no name. Raises
    UsageError."""
    expected = "the file that the page saves, or the text that it shows"
    if len(data) > LARGEST:
        raise UsageError(f"{name} holds {len(data):,} bytes, which is no file of answers; give {expected}")
    try:
        document = cast(object, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON ({str(error)[:80]}); give {expected}") from error
    found = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    page, who, answers = found.get("page"), found.get("person", ""), found.get("answers")
    if not isinstance(page, str) or not isinstance(who, str) or not isinstance(answers, dict):
        raise UsageError(f"{name} has no page, person and answers; give {expected}")
    chosen = cast(dict[str, object], answers)
    for question, choice in chosen.items():
        if isinstance(choice, bool) or choice not in (1, 2):
            raise UsageError(f"{name} answers question {question[:40]!r} with {str(choice)[:40]!r}; expected 1 or 2")
    return Answers(page=page, who=who.strip()[:80] or name, chosen=cast(dict[str, int], chosen))


def score(answers: Sequence[Answers], key: Key, resamples: int, seed: int = 0) -> Score:
    """All of them about the key's page. Raises UsageError for answers to anything else, for two of one name, and where
    there are none at all."""
    names = [one.who for one in answers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{' and '.join(twice)} answered more than once; give one file for each person")
    found: Found = {}
    for one in answers:
        for question, choice in one.chosen.items():
            behind = key.items.get(question)
            if behind is None or one.page != key.name:
                raise UsageError(
                    f"{one.who} answered a question {question[:40]!r} that page {key.name} does not ask; give the answers "
                    "to that page alone"
                )
            method = (choice - 1) ^ behind.first
            found.setdefault(behind.unit, []).append((one.who, behind.replicate, method))
    if not found:
        raise UsageError(f"nobody has answered anything on page {key.name} yet; give files with answers in them")
    choices = [choice for one in answers for choice in one.chosen.values()]
    return Score(
        methods=key.methods,
        share=_share(found, resamples, seed),
        units=len(found),
        answered=len(choices),
        asked=len(key.items) * len(answers),
        who=tuple(names),
        same=_same(found),
        first=choices.count(1) / len(choices),
    )


def _share(found: Found, resamples: int, seed: int) -> Interval:
    drawn = [
        bootstrap.level(str(unit), Group.of([1.0 - one[2] for one in said], [one[0] for one in said]), resamples, seed)
        for unit, said in sorted(found.items())
    ]
    crossed = bootstrap.pooled(drawn, seed)
    low, high = wilson(crossed.mean, len(drawn))
    return Interval(mean=crossed.mean, low=min(crossed.low, low), high=max(crossed.high, high))


def _same(found: Found) -> float | None:
    by_pair: dict[tuple[Unit, str, int], list[int]] = {}
    for unit, said in found.items():
        for who, replicate, method in said:
            by_pair.setdefault((unit, who, replicate), []).append(method)
    both = [methods for methods in by_pair.values() if len(methods) == 2]
    return sum(one == other for one, other in both) / len(both) if both else None
