"""Reads people's answers to blind questions, or asks a language model, and scores the answers."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import openmaia
from openmaia.api.runs import LoadedRun
from openmaia.core.documents import parse_json
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.text import printable
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import ClusteredValues, Interval
from openmaia.evaluation.analysis.raters import krippendorff
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
)
from openmaia.recipes.choices.questions import AnswerKey, ChoiceQuestion
from openmaia.runs.run import Run

_MAX_BYTES = 4_000_000
"""Of a file of answers."""

_PASSED = 0.8
"""Share of the attention checks that a participant answered and has to have right."""

_CHOICE = re.compile(r"^\W*(?:answer\W+|label\W+)?([12])\b\W*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAnswers:
    """The answers of one person or model to one page."""

    page: str
    who: str
    chosen: Mapping[str, int]
    """By question: 1 for the text shown first, 2 for the second."""
    cause: str = ""
    """Why the model gave no usable answer to some questions (the first reason)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceScore:
    """How often the texts of the first of two methods were preferred, over all answers to one page."""

    methods: tuple[str, str]
    share: Interval
    """Share of choices for the first method. Its interval is the smallest one that contains two others: the bootstrap
    interval over participants crossed with units, and Wilson's interval with the number of units as the sample size,
    because the answers about one unit are not independent."""
    units: int
    """With an answer."""
    answered: int
    """Answers of all participants."""
    questions: int
    """Questions times participants."""
    participants: tuple[str, ...]
    consistent: float | None
    """Share of pairs for which a participant chose the same text in both orders, of those that one answered in both;
    None without any."""
    first: float
    """Share of choices of the text shown first."""
    alpha: float | None
    """How far participants agree on the questions that several of them answered (`krippendorff`)."""
    inattentive: tuple[str, ...]
    """Participants who failed attention checks. Their answers are in no other field."""


def language_model(run: Run) -> LanguageModel:
    """Returns the model that writes the test prompts of a run. Raises UsageError if rules write them."""
    model = openmaia.load_models(LoadedRun(run)).language_model
    if model is None:
        raise UsageError(
            "a forced choice by a model needs a language model that sees, and neither backbone nor evaluate.writer is one; "
            "set evaluate.writer.kind and evaluate.writer.model in the run's config, or export a page for people (--2afc-page)"
        )
    return model


def ask_model(questions: Sequence[ChoiceQuestion], page: str, model: LanguageModel) -> ChoiceAnswers:
    """Asks a language model each question in a conversation of its own. Questions without a usable answer are missing
    in `chosen`.
    """
    answers = model.ask_all([_question(each) for each in questions], parse_choice)
    failures = [each.message for each in answers if isinstance(each, UnansweredQuestion)]
    return ChoiceAnswers(
        page=page,
        who=model.name,
        chosen={
            question.name: answer
            for question, answer in zip(questions, answers, strict=True)
            if not isinstance(answer, UnansweredQuestion)
        },
        cause=failures[0] if failures else "",
    )


def _question(question: ChoiceQuestion) -> Question:
    if question.pair.truth:
        return Question.of(
            fill_template("choice_truth", truth=question.pair.truth, one=question.texts[0], two=question.texts[1])
        )
    images = [EncodedImage(data=data) for data in question.pair.exemplars]
    return Question.of(fill_template("choice", one=question.texts[0], two=question.texts[1]), *images)


def parse_choice(answer: str) -> int:
    """Parses 1 or 2 from the last non-blank line, such as "Answer: 2". Raises MalformedAnswer."""
    lines = [line for line in answer.splitlines() if line.strip()]
    match = _CHOICE.match(lines[-1]) if lines else None
    if match is None:
        raise MalformedAnswer("the last line has to be 1 or 2 and nothing else")
    return int(match[1])


def read_answers(data: bytes, name: str) -> ChoiceAnswers:
    """Reads a file that the page saved. Its name also stands for a participant who gave none. Raises UsageError if it
    is too large or of another format.
    """
    expected = "the file that the page saves, or the text that it shows"
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{name} holds {len(data):,} bytes, which is no file of answers; give {expected}")
    try:
        document = cast(object, parse_json(data))
    except ValueError as error:
        raise UsageError(f"{name} is no JSON ({str(error)[:80]}); give {expected}") from error
    fields = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    page, who, answers = fields.get("page"), fields.get("person", ""), fields.get("answers")
    if not isinstance(page, str) or not isinstance(who, str) or not isinstance(answers, dict):
        raise UsageError(f"{name} has no page, person and answers; give {expected}")
    chosen = cast(dict[str, object], answers)
    for question, choice in chosen.items():
        if type(choice) is not int or choice not in (1, 2):
            raise UsageError(f"{name} answers question {question[:40]!r} with {str(choice)[:40]!r}; expected 1 or 2")
    return ChoiceAnswers(page=page, who=printable(who).strip()[:80] or name, chosen=cast(dict[str, int], chosen))


ChoicesByUnit = Mapping[Unit, Sequence[tuple[str, int, int]]]
"""(participant, replicate, index of the chosen method: 0 or 1) for each choice about a unit."""


def score_answers(answers: Sequence[ChoiceAnswers], key: AnswerKey, resamples: int, seed: int = 0) -> ChoiceScore:
    """Computes how often the texts of the first of two methods were preferred, from all answers to one page.

    Participants who failed attention checks are left out.

    Raises UsageError if no question is answered, an answer belongs to another page, or two of `answers` come from the
    same participant.
    """
    participants = tuple(each.who for each in answers)
    twice = sorted({name for name in participants if participants.count(name) > 1})
    if twice:
        raise UsageError(f"{' and '.join(twice)} answered more than once; give one file for each person")
    inattentive = tuple(each.who for each in answers if not _is_attentive(each, key))
    answers = [each for each in answers if each.who not in inattentive]
    if not answers:
        raise UsageError(f"{' and '.join(inattentive)} failed the attention checks, and nobody else has answered")
    by_unit: defaultdict[Unit, list[tuple[str, int, int]]] = defaultdict(list)
    by_question: defaultdict[str, list[int]] = defaultdict(list)
    for each in answers:
        for question, choice in each.chosen.items():
            source = key.items.get(question)
            if question in key.checks and each.page == key.name:
                continue
            if source is None or each.page != key.name:
                raise UsageError(
                    f"{each.who} answered a question {question[:40]!r} that page {key.name} does not ask; give the answers "
                    "to that page alone"
                )
            method = (choice - 1) ^ source.first
            by_unit[source.unit].append((each.who, source.replicate, method))
            by_question[question].append(method)
    if not by_unit:
        raise UsageError(f"nobody has answered anything on page {key.name} yet; give files with answers in them")
    choices = [choice for each in answers for name, choice in each.chosen.items() if name in key.items]
    return ChoiceScore(
        methods=key.methods,
        share=_share(by_unit, resamples, seed),
        units=len(by_unit),
        answered=len(choices),
        questions=len(key.items) * len(answers),
        participants=tuple(each.who for each in answers),
        consistent=_consistent(by_unit),
        first=choices.count(1) / len(choices),
        alpha=krippendorff(by_question.values()),
        inattentive=inattentive,
    )


def _is_attentive(answers: ChoiceAnswers, key: AnswerKey) -> bool:
    given = [answers.chosen[name] == right for name, right in key.checks.items() if name in answers.chosen]
    return not given or sum(given) >= _PASSED * len(given)


def _share(by_unit: ChoicesByUnit, resamples: int, seed: int) -> Interval:
    estimates = [
        bootstrap.group_mean(
            str(unit),
            ClusteredValues.of([1.0 - method for _, _, method in choices], [who for who, _, _ in choices]),
            resamples,
            seed,
        )
        for unit, choices in sorted(by_unit.items())
    ]
    crossed = bootstrap.pooled(estimates, seed)
    low, high = wilson(crossed.mean, len(estimates))
    return Interval(mean=crossed.mean, low=min(crossed.low, low), high=max(crossed.high, high))


def _consistent(by_unit: ChoicesByUnit) -> float | None:
    by_pair: defaultdict[tuple[Unit, str, int], list[int]] = defaultdict(list)
    for unit, choices in by_unit.items():
        for who, replicate, method in choices:
            by_pair[unit, who, replicate].append(method)
    both = [methods for methods in by_pair.values() if len(methods) == 2]
    return sum(first == second for first, second in both) / len(both) if both else None
