"""Writes the prompts of the preset `pairing`, in which all methods that described a unit share their prompts.

7 positive and 7 neutral prompts are written for each description of the unit, so that three methods give 42. A language
model rates how far each description entails each of these prompts. The 7 with the highest ratings are its positive
prompts, and the 7 with the lowest its neutral ones. A prompt has the same seed for all methods, and therefore the same
image.
"""

import heapq
import re
from collections.abc import Mapping, Sequence

from openmaia.evaluation.analysis.overlap import ExploredPrompts
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
)
from openmaia.evaluation.prompts import (
    PROMPT_ROLES,
    PUBLISHED_COUNT,
    PublishedPromptWriter,
    StimulusPrompt,
    WrittenPrompts,
    number_lines,
    write_prompts,
)

_RATING = re.compile(r"^\W*(\d{1,4})\s*[:.)].*?(?<![\d.,])(\d{1,3})\s*(?:%|/\s*100)?\W*$")
"""The number of a prompt, optionally the prompt itself, and its rating."""

_MAX_RATING = 100


def write_paired(
    claims: Sequence[Claim], model: LanguageModel, run_seed: int, explored: ExploredPrompts = frozenset()
) -> list[WrittenPrompts]:
    """Writes the test prompts of several methods' claims about one unit, in their order. An UnansweredQuestion says why
    there are none; an abstention gets none, and none are written for it.
    """
    writer = PublishedPromptWriter(model, "pairing")
    written = [write_prompts(claim, writer, PUBLISHED_COUNT, run_seed, explored) for claim in claims]
    seeds: dict[str, int] = {}
    for prompts in written:
        for each in prompts if isinstance(prompts, list) else ():
            seeds.setdefault(each.prompt, each.seed)
    shared = list(seeds)
    asked = [n for n, prompts in enumerate(written) if isinstance(prompts, list) and prompts]
    questions = [
        Question.of(fill_template("entailed", claim=claims[n].text, prompts=number_lines(shared)), run_seed=run_seed)
        for n in asked
    ]
    ratings = model.ask_all(questions, lambda answer: parse_ratings(answer, len(shared)))
    rated = dict(zip(asked, ratings, strict=True))
    return [_chosen(rated[n], seeds) if n in rated else prompts for n, prompts in enumerate(written)]


def _chosen(ratings: list[int] | UnansweredQuestion, seeds: Mapping[str, int]) -> WrittenPrompts:
    if isinstance(ratings, UnansweredQuestion):
        return ratings
    prompts = list(seeds)
    most, least = find_most_and_least(ratings)
    return [
        StimulusPrompt(role=role, label="", prompt=prompts[position], seed=seeds[prompts[position]])
        for role, positions in zip(PROMPT_ROLES, (most, least), strict=True)
        for position in positions
    ]


def find_most_and_least(ratings: Sequence[int], n: int = PUBLISHED_COUNT) -> tuple[list[int], list[int]]:
    """Returns the positions of the n highest and of the n lowest ratings, without a position in both.

    If there are fewer than 2 n ratings, n is half their number. Of equal ratings, the earlier position is chosen.
    """
    n = min(n, len(ratings) // 2)
    most = heapq.nlargest(n, range(len(ratings)), key=lambda position: ratings[position])
    rest = [position for position in range(len(ratings)) if position not in most]
    return most, heapq.nsmallest(n, rest, key=lambda position: ratings[position])


def parse_ratings(answer: str, count: int) -> list[int]:
    """Parses ratings from 0 to 100 of `count` numbered prompts, one line for each, such as "3: 80". Raises
    MalformedAnswer unless each has one.
    """
    lines = [match for line in answer.splitlines() if (match := _RATING.match(line))]
    ratings = {int(match[1]): int(match[2]) for match in lines}
    if len(lines) != count or set(ratings) != set(range(1, count + 1)):
        raise MalformedAnswer(f"{len(lines)} ratings came where one was asked for each prompt from 1 to {count}")
    if max(ratings.values()) > _MAX_RATING:
        raise MalformedAnswer(f"a rating is above {_MAX_RATING}")
    return [ratings[number] for number in range(1, count + 1)]
