"""Writes the prompts of test images.

Positive prompts show what the claim names, neutral prompts do not. No test prompt equals, apart from case and white
space, a prompt of the investigation. The protocols of the MAIA papers do not exclude such prompts.

Presets:
    labels: n positive prompts, divided evenly among the labels, each with a matched neutral prompt (our default).
    paper: 7 positive and 7 neutral prompts from the description.
    repo: n positive and n neutral prompts from the labels, as in evaluation/eval.py of the published MAIA code.
    pairing: all methods that described a unit share their prompts, see `openmaia.evaluation.pairing`.

`paper` and `pairing` follow the MAIA papers.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, Protocol

from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.analysis.overlap import ExploredPrompts, fold
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
    parse_list,
    parse_pairs,
)

PromptPreset = Literal["labels", "paper", "repo", "pairing"]
PromptRole = Literal["positive", "neutral"]
PROMPT_ROLES: tuple[PromptRole, ...] = ("positive", "neutral")

PUBLISHED_COUNT = 7
"""Positive, and neutral, prompts of a description in the MAIA papers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StimulusPrompt:
    """The prompt of one test image."""

    role: PromptRole
    label: str
    """Empty if the prompt tests the whole description."""
    prompt: str
    seed: int
    """In the preset `labels` a positive prompt and its neutral one share a seed, for the same image layout."""


class PromptWriter(Protocol):
    """All methods raise UnansweredQuestion if they find no usable prompts, or the language model gives no usable
    answer.
    """

    @property
    def name(self) -> str:
        """The writer's name in results."""
        ...

    @property
    def words(self) -> Sequence[str]:
        """The words that serve as random descriptions."""
        ...

    def write(
        self,
        claim: Claim,
        n: int,
        run_seed: int,
        explored: ExploredPrompts = frozenset(),
        written: Sequence[StimulusPrompt] = (),
    ) -> list[StimulusPrompt]:
        """Returns at most n positive prompts, followed by as many neutral ones; fewer if `explored`, the prompts of the
        investigation normalised by `overlap.fold`, leaves too few.

        Those `written` for earlier looks are used again, with other seeds, only if there are no others.
        """
        ...

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        """Returns n prompts of control images, which depend on no claim."""
        ...

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        """Returns the positions of the prompts that show what a claim names."""
        ...


@dataclass(frozen=True, slots=True)
class ModelPromptWriter:
    """Asks a language model for matched pairs of prompts, for each label of a claim."""

    model: LanguageModel

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def words(self) -> Sequence[str]:
        """The words in words.txt. They name visible things and properties, without a relation to any network or
        dataset.
        """
        return (files("openmaia.evaluation") / "words.txt").read_text(encoding="utf-8").split()

    def write(
        self,
        claim: Claim,
        n: int,
        run_seed: int,
        explored: ExploredPrompts = frozenset(),
        written: Sequence[StimulusPrompt] = (),
    ) -> list[StimulusPrompt]:
        """Returns pairs in which no label's prompts show what the others name. The model is asked once more to replace
        pairs in `explored` and repeated prompts.
        """
        labels = claim.statements
        earlier = prompt_rows(written)
        rows: list[tuple[str, str, str]] = []
        uses = Counter(fold(each.prompt) for each in written)
        for number, label in enumerate(labels):
            count = n // len(labels) + (number < n % len(labels))
            if count:
                others = [other for other in labels if other != label]
                avoid = f"Neither prompt may show any of these: {'; '.join(others)}." if others else ""

                def ask(missing: int, used: str, label: str = label, avoid: str = avoid) -> list[tuple[str, ...]]:
                    text = fill_template("pairs", claim=label, n=missing, avoid=f"{avoid}\n{used}".strip())
                    question = Question.of(f"{text}\n{fill_template('lines', n=missing)}", run_seed=run_seed)
                    return self.model.ask(question, lambda answer: parse_pairs(answer, missing))

                before = [(positive, neutral) for shown, positive, neutral in earlier if shown == label]
                pairs = ask_for_new(ask, count, explored, uses, before)
                rows += [(label, positive, neutral) for positive, neutral in pairs]
        return seed_pairs(rows, run_seed, earlier)

    def unrelated(self, n: int, run_seed: int) -> list[str]:
        """Returns n prompts of varied everyday scenes."""
        text = fill_template("unrelated", n=n) + "\n" + fill_template("lines", n=n)
        return self.model.ask(Question.of(text, run_seed=run_seed), lambda answer: parse_list(answer, n))

    def related(self, claim: Claim, prompts: Sequence[str]) -> frozenset[int]:
        """Returns the positions of the prompts that show what a claim names."""
        text = fill_template("related", claim=claim.text, prompts=number_lines(prompts))
        return self.model.ask(Question.of(text), lambda answer: parse_numbers(answer, len(prompts)))


@dataclass(frozen=True, slots=True)
class PublishedPromptWriter(ModelPromptWriter):
    """Asks one question for all positive prompts and one for all neutral ones, which are not matched, as the MAIA
    papers and their code do.
    """

    preset: PromptPreset

    def write(
        self,
        claim: Claim,
        n: int,
        run_seed: int,
        explored: ExploredPrompts = frozenset(),
        written: Sequence[StimulusPrompt] = (),
    ) -> list[StimulusPrompt]:
        """In the preset `repo` the model gets the labels of the claim, otherwise the description."""
        statement = "\n".join(claim.labels) if self.preset == "repo" else claim.description
        prompts: list[StimulusPrompt] = []
        uses = Counter(fold(each.prompt) for each in written)
        for role in PROMPT_ROLES:

            def ask(missing: int, used: str, role: PromptRole = role) -> list[tuple[str, ...]]:
                text = fill_template(role, claim=statement or claim.text, n=missing)
                text = "\n".join(filter(None, (text, used, fill_template("lines", n=missing))))
                question = Question.of(text, run_seed=run_seed)
                return [(prompt,) for prompt in self.model.ask(question, lambda answer: parse_list(answer, missing))]

            for (prompt,) in ask_for_new(ask, n, explored, uses):
                number = seed(run_seed, "evaluate", prompt, 0)
                prompts.append(StimulusPrompt(role=role, label="", prompt=prompt, seed=number))
        return prompts


AskForPrompts = Callable[[int, str], list[tuple[str, ...]]]
"""(n, instruction) -> rows: asks for n prompts, or pairs of prompts, each returned as a tuple. The instruction, which
may be empty, names prompts that must not be written again."""


def ask_for_new(
    ask: AskForPrompts,
    n: int,
    explored: ExploredPrompts,
    uses: Counter[str],
    earlier: Iterable[tuple[str, ...]] = (),
) -> list[tuple[str, ...]]:
    """Asks for n rows (prompts or pairs), and once more to replace those that cannot be used. Returns at most n.

    Rows with a prompt in `explored` are left out. Rows that only repeat another test prompt, or are among those of
    earlier looks, are used if there are too few others. `uses` counts the uses of each prompt, normalised by
    `overlap.fold`; those of new rows are added.

    Raises UnansweredQuestion if the model gave no usable answer, or only prompts in `explored`.
    """
    new: list[tuple[str, ...]] = []
    refused = list(earlier)
    for _ in range(2):
        if len(new) == n:
            break
        try:
            answers = ask(n - len(new), _not_again(refused))
        except UnansweredQuestion:
            if not refused:
                raise
            break
        for prompts in answers:
            folded = [fold(prompt) for prompt in prompts]
            is_new = not any(prompt in explored or uses[prompt] for prompt in folded)
            (new if is_new else refused).append(prompts)
            if is_new:
                uses.update(folded)
    repeated = [prompts for prompts in refused if not any(fold(prompt) in explored for prompt in prompts)]
    if not new and not repeated:
        raise UnansweredQuestion(f"all {len(refused)} prompts that were written are prompts that the agent drew")
    return (new + repeated)[:n]


def _not_again(prompts: Sequence[tuple[str, ...]]) -> str:
    if not prompts:
        return ""
    return "\n".join(("Do not write these prompts again:", *(f"- {prompt}" for each in prompts for prompt in each)))


WrittenPrompts = list[StimulusPrompt] | UnansweredQuestion
"""Empty for an abstention, or the error that says why no prompts could be written."""


def write_prompts(
    claim: Claim,
    writer: PromptWriter,
    n: int,
    run_seed: int,
    explored: ExploredPrompts = frozenset(),
    written: Sequence[StimulusPrompt] = (),
) -> WrittenPrompts:
    """Writes test prompts (see `PromptWriter.write`). An UnansweredQuestion of the writer is returned."""
    try:
        return [] if claim.is_abstention else writer.write(claim, n, run_seed, explored, written)
    except UnansweredQuestion as error:
        return error


def parse_numbers(answer: str, count: int) -> frozenset[int]:
    """Parses numbers from 1 to `count`, or the word "none", as positions from 0. Raises MalformedAnswer if there is
    neither, both, an interval such as "1-3", or another number.
    """
    written, is_none = re.findall(r"\d+", answer), "none" in answer.casefold()
    is_range = re.search(r"\d\s*[-–—]\s*\d", answer) is not None
    if bool(written) == is_none or is_range or any(len(number) > 4 for number in written):
        raise MalformedAnswer("numbers separated by commas, or the word none, were asked for")
    numbers = [int(number) for number in written]
    if not set(numbers) <= set(range(1, count + 1)):
        raise MalformedAnswer(f"the numbers have to be between 1 and {count}")
    return frozenset(number - 1 for number in numbers)


def prompt_rows(prompts: Sequence[StimulusPrompt]) -> list[tuple[str, str, str]]:
    """Returns the rows (label, positive prompt, neutral prompt) of which `seed_pairs` made prompts."""
    positive, neutral = ([each for each in prompts if each.role == role] for role in PROMPT_ROLES)
    return [(first.label, first.prompt, second.prompt) for first, second in zip(positive, neutral, strict=True)]


def seed_pairs(
    rows: Sequence[tuple[str, str, str]], run_seed: int, earlier: Sequence[tuple[str, str, str]] = ()
) -> list[StimulusPrompt]:
    """Assigns seeds to rows of (label, positive prompt, neutral prompt). Returns all positive prompts, followed by all
    neutral ones.

    A seed depends on the pair and on how often it occurred before, in `earlier` looks too, so that a pair has the same
    images in every claim, and a repeated pair new ones.
    """
    occurrences = Counter(f"{positive} | {neutral}" for _, positive, neutral in earlier)
    seeds: list[int] = []
    for _, positive, neutral in rows:
        pair = f"{positive} | {neutral}"
        seeds.append(seed(run_seed, "evaluate", pair, occurrences[pair]))
        occurrences[pair] += 1
    return [
        StimulusPrompt(role=role, label=row[0], prompt=row[1 + column], seed=number)
        for column, role in enumerate(PROMPT_ROLES)
        for row, number in zip(rows, seeds, strict=True)
    ]


def number_lines(prompts: Sequence[str]) -> str:
    """Lists prompts with numbers from 1."""
    return "\n".join(f"{number}. {prompt}" for number, prompt in enumerate(prompts, start=1))
