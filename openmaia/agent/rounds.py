"""Rounds: what sends a tested answer back to the agent, and what the agent reads of the test."""

from collections.abc import Iterator, Sequence

from openmaia.agent.context import InvestigationContext
from openmaia.agent.tools.seeds import seed
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Part, user
from openmaia.runs.evidence import Confirmation, ConfirmationSample, Fault

LEAST_AUC = 0.75
"""A label fails if the AUC of its images against its near misses is lower."""
LEAST_PERCENTILE = 50.0
"""A label fails if its images have a lower percentile among the dataset images, on average."""


def find_faults(tests: Sequence[Confirmation]) -> dict[str, Fault]:
    """Returns the labels of the latest test that fail, each with what is wrong with it.

    A label that earlier tests had as well is judged by the images of all, so that repeating an answer until luck
    accepts it does not help. A label passes if none of its images could be drawn, because nothing speaks against it.
    """
    samples = tuple(sample for test in tests for sample in test.samples)
    found: dict[str, Fault] = {}
    for label in tests[-1].labels:
        pooled = Confirmation(samples=tuple(sample for sample in samples if sample.label == label))
        if fault := _fault(pooled):
            found[label] = fault
    return found


def _fault(test: Confirmation) -> Fault | None:
    drawn = [sample for sample in test.samples if not sample.near_miss and not sample.missing_terms]
    percentiles = [sample.percentile for sample in drawn if sample.percentile is not None]
    if percentiles and sum(percentiles) / len(percentiles) < LEAST_PERCENTILE:
        return Fault.IMAGES
    auc = test.auc()
    return Fault.NEAR_MISSES if auc is not None and auc < LEAST_AUC else None


def make_feedback(
    context: InvestigationContext, test: Confirmation, faults: dict[str, Fault], nth: int
) -> tuple[Part, ...]:
    """Returns the message about a failed test: each label and its AUC, and each image with its activation.

    For a backbone that takes no images, the viewer describes them. `nth` is the number of earlier rounds. Raises
    ServiceError.
    """
    lines = "\n".join(f"- {_describe_result(test, label, faults.get(label))}" for label in test.labels)
    parts: list[Part] = [context.task.refuted.replace("{faults}", lines)]
    images = [test.images[sample.digest] for sample in test.samples]
    for sample, image, words in zip(test.samples, images, _ask_viewer(context, images, nth), strict=True):
        parts += [f"{_describe_image(sample)}{words}\n", image]
    return tuple(parts)


def _describe_result(test: Confirmation, label: str, fault: Fault | None) -> str:
    auc = test.auc(label)
    measured = (
        "no image of it and of a near miss could be drawn" if auc is None else f"AUC {auc:.2f} against near misses"
    )
    match fault:
        case None:
            return f"the label {label!r} passed ({measured})"
        case Fault.IMAGES:
            return (
                f"the label {label!r} failed: its images excite the unit no more than most of the dataset ({measured})"
            )
        case Fault.NEAR_MISSES:
            return f"the label {label!r} failed: its near misses excite the unit as much as its images ({measured})"


def _describe_image(sample: ConfirmationSample) -> str:
    kind = (
        f"near miss of {sample.label!r}, shows {sample.near_miss!r}" if sample.near_miss else f"shows {sample.label!r}"
    )
    percentile = "" if sample.percentile is None else f" (percentile {sample.percentile:g})"
    missing = f"; could not draw {', '.join(map(repr, sample.missing_terms))}" if sample.missing_terms else ""
    return f"[{kind}] activation {sample.activation:.5g}{percentile}; prompt {sample.prompt!r}{missing}"


def _ask_viewer(context: InvestigationContext, images: Sequence[EncodedImage], nth: int) -> Iterator[str]:
    if context.options.sees_images:
        yield from ("" for _ in images)
        return
    chats = [
        Chat(
            conversation="",
            messages=(user(context.task.describe, image),),
            seed=seed(context.run_seed, "confirm", f"viewer {image.digest}", nth),
            max_tokens=context.options.reply_tokens,
        )
        for image in images
    ]
    yield from (f"; {reply.text.strip()}" for reply in context.services.backbone.reply(chats))
