"""Tests the labels of an answer on new images.

Each image of a label has a counterpart, its near miss: the same scene with one thing changed, so that the label no
longer holds.
"""

import re
from collections import Counter
from collections.abc import Sequence

from openmaia.agent.context import InvestigationContext
from openmaia.agent.contrasts import Contrast, WrittenContrasts
from openmaia.agent.evidence import ID, assess
from openmaia.agent.tasks.grammar import ParsedReply
from openmaia.agent.tasks.task import StoppingRule
from openmaia.agent.tools.seeds import seed
from openmaia.core.messages import AnswerFormat
from openmaia.core.services import Generation, Probe
from openmaia.core.units import Scope
from openmaia.runs.evidence import Confirmation, ConfirmationSample
from openmaia.runs.records import Turn

MAX_DROPPED = 8
"""Largest number of hypotheses rejected by the agent that may be used as near misses. The latest come first."""


def pairs_due(context: InvestigationContext, answer: ParsedReply) -> int:
    """Returns the number of image pairs with which the answer has to be tested; 0 if it is not tested.

    One image of a pair shows a label of the answer, the other the same scene without what the label names. An answer is
    tested if the task requires it, its labels are free text, and it is about a single unit.
    """
    task = context.task
    is_due = answer.labels and task.rule.confirm and not task.answer.choices and context.unit.scope is Scope.UNIT
    return max(task.rule.confirm, len(answer.labels)) if is_due else 0


def confirm(context: InvestigationContext, answer: ParsedReply, turns: Sequence[Turn]) -> Confirmation:
    """Generates new images that test the labels of an answer, and measures the unit's activation on them.

    The images come in pairs. One image shows a label. The other shows a near miss: the same scene with one thing
    changed, so that the label no longer holds.

    Args:
        context: The inputs of the investigation.
        answer: The answer to test.
        turns: All turns of the investigation. A near miss may show a hypothesis that the agent listed in a turn and
            rejected in its answer.

    Returns:
        The result of the test, with one sample for each image. It has no samples if no pairs of prompts were found.

    Raises:
        ServiceError: A service failed.
    """
    services, options = context.services, context.options
    spent_before = services.ledger.spent()
    contrasts = options.contrasts or WrittenContrasts(
        backbone=services.backbone,
        instructions=context.task.contrasts,
        run_seed=context.run_seed,
        reply_tokens=options.reply_tokens,
    )
    pairs = contrasts.find(answer.labels, dropped(turns, answer, context.task.answer), pairs_due(context, answer))
    if not pairs:
        return Confirmation(samples=(), spent=services.ledger.since(spent_before))
    requests = _requests(pairs, context.run_seed)
    images = services.generator.generate(requests)
    activations = services.target.probe([Probe(unit=context.unit, image=generated.image) for generated in images])
    exemplars = services.exemplars.read(context.unit)
    samples = [
        ConfirmationSample(
            label=pair.label,
            prompt=request.prompt,
            near_miss=pair.shows if index % 2 else "",
            control=pair.source if index % 2 else "",
            seed=request.seed,
            digest=generated.image.digest,
            activation=activation.value,
            percentile=None if (rank := exemplars.percentile(activation.value)) is None else round(rank, 1),
            missing_terms=generated.missing_terms,
        )
        for index, (pair, request, generated, activation) in enumerate(
            zip([pair for pair in pairs for _ in range(2)], requests, images, activations, strict=True)
        )
    ]
    return Confirmation(
        samples=tuple(samples),
        spent=services.ledger.since(spent_before),
        images={generated.image.digest: generated.image for generated in images},
    )


def dropped(turns: Sequence[Turn], last: ParsedReply, answer: AnswerFormat) -> list[str]:
    """Returns the hypotheses that the agent rejected: it listed them in some turn, but its answer does not keep them.

    Args:
        turns: The turns of the investigation.
        last: The agent's answer.
        answer: The format of answers.

    Returns:
        The hypotheses without their ids (such as "H1"), the latest first; no more than the constant MAX_DROPPED.
    """
    tested = assess(StoppingRule(), turns, answer).tested
    kept = [_words(text) for text in (*last.labels, *(one.hypothesis for one in tested))]
    listed = dict.fromkeys(ID.sub("", entry).lstrip(" :.)-") for turn in reversed(turns) for entry in turn.hypotheses)
    rejected = [
        entry for entry in listed if _words(entry) and not any(_words(entry) <= k or k <= _words(entry) for k in kept)
    ]
    return rejected[:MAX_DROPPED]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", ID.sub("", text).casefold()))


def _requests(pairs: Sequence[Contrast], run_seed: int) -> list[Generation]:
    """Returns the requests for the two images of each pair, which share a seed so that layout and background agree.

    A generator that composes images from parts of the dataset takes them from the test split, which the agent has not
    seen.
    """
    occurrences: Counter[str] = Counter()
    requests: list[Generation] = []
    for pair in pairs:
        prompts = pair.prompt, pair.contrast_prompt
        key = " | ".join(prompts)
        number = seed(run_seed, "confirm", key, occurrences[key])
        occurrences[key] += 1
        requests += [Generation(prompt=prompt, seed=number, split="test") for prompt in prompts]
    return requests
