"""Measures the contrasts that confirm an answer."""

import re
from collections import Counter
from collections.abc import Sequence

from openmaia.agent.context import InvestigationContext
from openmaia.agent.contrasts import Contrast, WrittenContrasts
from openmaia.agent.evidence.demands import ID, find_measured_images, find_tested
from openmaia.agent.tasks.grammar import ParsedReply
from openmaia.agent.tools.seeds import seed
from openmaia.core.messages import AnswerFormat
from openmaia.core.services import Generation, Probe, Split
from openmaia.core.units import Scope
from openmaia.runs.evidence import Confirmation, ConfirmationSample
from openmaia.runs.records import Turn

_MAX_DROPPED = 8
"""Rejected hypotheses that may serve as near misses, the latest first."""


def count_pairs(context: InvestigationContext, answer: ParsedReply) -> int:
    """Returns the number of contrasts that an answer needs: 0 if the task demands none, its labels are choices, or it
    is not about a unit.
    """
    task = context.task
    is_due = answer.labels and task.rule.confirm and not task.answer.choices and context.unit.scope is Scope.UNIT
    return max(task.rule.confirm, len(answer.labels)) if is_due else 0


def list_failed(turns: Sequence[Turn]) -> list[Confirmation]:
    """Returns the tests that sent answers back."""
    return [turn.failed_test.confirmation for turn in turns if turn.failed_test]


def confirm(context: InvestigationContext, answer: ParsedReply, turns: Sequence[Turn]) -> Confirmation:
    """Generates and measures the contrasts of an answer. The result has one sample for each image; none if no contrasts
    were found. A near miss may show a hypothesis that was listed in `turns` and is not in the answer. No image has
    prompt and seed of one in the tests that failed before.
    """
    services, options = context.services, context.options
    spent_before = services.ledger.spent()
    contrasts = options.contrasts or WrittenContrasts(
        backbone=services.backbone,
        instructions=context.task.contrasts,
        run_seed=context.run_seed,
        reply_tokens=options.reply_tokens,
    )
    pairs = contrasts.find(
        answer.labels, list_dropped(turns, answer, context.task.answer), count_pairs(context, answer)
    )
    if not pairs:
        return Confirmation(samples=(), spent=services.ledger.since(spent_before))
    requests = _requests(pairs, context, list_failed(turns))
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


def list_dropped(turns: Sequence[Turn], last: ParsedReply, answer: AnswerFormat) -> list[str]:
    """Returns the hypotheses that were listed in some turn and that the answer does not keep, without ids, the latest
    first, at most _MAX_DROPPED.
    """
    tested = find_tested(find_measured_images(turns), last, answer)
    kept = [_words(text) for text in (*last.labels, *(one.hypothesis for one in tested))]
    listed = dict.fromkeys(ID.sub("", entry).lstrip(" :.)-") for turn in reversed(turns) for entry in turn.hypotheses)
    rejected = [
        entry for entry in listed if _words(entry) and not any(_words(entry) <= k or k <= _words(entry) for k in kept)
    ]
    return rejected[:_MAX_DROPPED]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", ID.sub("", text).casefold()))


def _requests(
    pairs: Sequence[Contrast], context: InvestigationContext, failed: Sequence[Confirmation]
) -> list[Generation]:
    occurrences = Counter(
        _key(own.prompt, near.prompt)
        for test in failed
        for own, near in zip(test.samples[::2], test.samples[1::2], strict=True)
    )
    # A generator that composes images of the dataset takes parts that the agent has not seen. With rounds the agent may
    # see these images, and the parts of the test split are for the evaluation alone.
    split: Split = "explore" if context.task.rule.rounds else "test"
    requests: list[Generation] = []
    for pair in pairs:
        prompts = pair.prompt, pair.contrast_prompt
        key = _key(*prompts)
        # Both images share a seed, so that layout and background agree.
        number = seed(context.run_seed, "confirm", key, occurrences[key])
        occurrences[key] += 1
        requests += [Generation(prompt=prompt, seed=number, split=split) for prompt in prompts]
    return requests


def _key(prompt: str, contrast_prompt: str) -> str:
    return f"{prompt} | {contrast_prompt}"
