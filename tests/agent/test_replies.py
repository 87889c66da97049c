"""Replies that real language models wrote: each is understood as it was annotated, and damaged ones do no harm.

replies.jsonl holds one reply in a line, with the model that wrote it, its temperature, and what it replied to. `code`,
`answer` (answer, abstain or none) and `labels` say how a person who knows the format understands the first turn in it.
"""

import html
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openmaia.agent.evidence.demands import find_answer, find_missing_evidence
from openmaia.agent.tasks.ending import cut
from openmaia.agent.tasks.grammar import parse
from openmaia.agent.tasks.task import load as load_task
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import code
from tests.helpers.samples import turn

CORPUS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("replies.jsonl").read_text().splitlines()
]
INVESTIGATED = 12
TASK = load_task("description")


def understood(reply: str) -> tuple[bool, str, list[str]]:
    """Whether the first turn of a reply has an experiment, whether it answers, and its labels."""
    parsed = parse(cut(reply, is_turn=True)[0])
    answer = "none" if parsed.description is None else "answer" if parsed.description else "abstain"
    return bool(parsed.code), answer, list(parsed.labels)


def is_accepted(reply: str, is_due: bool) -> bool:
    """Whether a reply ends an investigation that has measured nothing."""
    text = cut(reply, is_turn=True)[0]
    only = turn(reply=text, code=parse(text).code, calls=())
    return find_answer(only, TASK.answer) is not None and not find_missing_evidence(
        TASK, [only], None, is_due=is_due, is_last=is_due
    )


# -- damages: each takes a reply and a source of randomness --------------------------------------------------------------


def truncated(text: str, source: random.Random) -> str:
    return text[: source.randrange(len(text) + 1)]


def other_fence(text: str, source: random.Random) -> str:
    return text.replace("```", source.choice(["~~~", "''''", "``", "`````", "<code>", '"""', "\u02cb\u02cb\u02cb"]))


def entities(text: str, source: random.Random) -> str:
    return html.escape(text) if source.random() < 0.5 else text.replace("[", "&#91;").replace("]", "&#93;")


def other_quotes(text: str, source: random.Random) -> str:
    opening, closing = source.choice(["„“", "«»", "“”", "「」", "‹›"])
    return text.replace('"', opening).replace("'", closing)


def interleaved(text: str, source: random.Random) -> str:
    lines = text.split("\n")
    heading = source.choice(
        ["[DESCRIPTION]: birds", "[CODE]:", "[HYPOTHESIS LIST]:", "**[LABEL 1]:** bird", "```python"]
    )
    lines.insert(source.randrange(len(lines) + 1), heading)
    return "\n".join(lines)


def shuffled(text: str, source: random.Random) -> str:
    lines = text.split("\n")
    source.shuffle(lines)
    return "\n".join(lines)


def repeated(text: str, source: random.Random) -> str:
    return text * source.randrange(2, 5)


def joined_lines(text: str, source: random.Random) -> str:
    return text.replace("\n", source.choice([" ", "\\n", "\r\n", "\u2028"]))


def damaged_characters(text: str, source: random.Random) -> str:
    letters = list(text)
    for _ in range(source.randrange(1, 20)):
        letters.insert(source.randrange(len(letters) + 1), source.choice("\0`[]*:#\ud800\u202e~\t<>0"))
    return "".join(letters)


DAMAGES: list[Callable[[str, random.Random], str]] = [
    truncated, other_fence, entities, other_quotes, interleaved, shuffled, repeated, joined_lines, damaged_characters,
]  # fmt: skip


def damaged() -> Iterator[str]:
    """Replies of the corpus with one to three damages, always the same."""
    source = random.Random(20)
    while True:
        text = source.choice(CORPUS)["reply"]
        for damage in source.sample(DAMAGES, source.randint(1, 3)):
            text = damage(text, source)
        yield text


def test_corpus_holds_replies_of_several_models():
    models = {line["model"] for line in CORPUS}
    assert len(CORPUS) >= 200 and len(models) >= 2
    assert {line["answer"] for line in CORPUS} == {"answer", "abstain", "none"}


@pytest.mark.parametrize("after", sorted({line["after"] for line in CORPUS}))
def test_reply_is_understood_as_annotated(after: str):
    lines = [line for line in CORPUS if line["after"] == after]
    annotated = [(line["code"], line["answer"], line["labels"]) for line in lines]
    assert [understood(line["reply"]) for line in lines] == annotated


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_damaged_reply_never_ends_an_investigation_without_evidence(count: int):
    replies = damaged()
    accepted = [
        text for _ in range(count) if is_accepted(text := next(replies), is_due=False) or is_accepted(text, True)
    ]
    assert not accepted


def test_investigation_of_damaged_replies_ends_without_an_answer(run: Investigate):
    """The loop runs what is left of the experiments, for which there is neither a tool nor a measurement."""
    replies = damaged()
    rule = ("task.evidence.experiments=2", "task.evidence.labels=1", "limits.turns=12", "limits.soft_turns=12")
    record = run(*(next(replies) or "." for _ in range(INVESTIGATED)), overrides=rule)
    assert record.stop is Stop.LIMIT or record.evidence.state == "met"


@pytest.mark.parametrize("kind", ["answer", "abstain"])
def test_answer_of_a_model_before_a_measurement_ends_no_investigation(run: Investigate, kind: str):
    first = next(line["reply"] for line in CORPUS if line["answer"] == kind)
    measured = code("print(system.call_neuron(['a red star'])[0])")
    rule = ("task.evidence.experiments=2", "limits.turns=2", "limits.soft_turns=2")
    record = run(first, measured, overrides=rule)
    assert record.stop is Stop.LIMIT and len(record.turns) == 2
