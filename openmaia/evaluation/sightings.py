"""Says which pictures of the dataset show what a claim names, by what is known of them."""

import logging
from collections.abc import Mapping, Sequence

from openmaia.core.errors import StoreError
from openmaia.core.images import EncodedImage
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.judging.detection import union
from openmaia.evaluation.judging.judges import ImageVerdict, Judge
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.services import EvaluationServices
from openmaia.evaluation.trials import Sightings

LOG = logging.getLogger(__name__)

TOP = 10
"""Exemplars that are looked at, so that stores with other numbers of exemplars can be compared."""


def find_shown(
    claim: Claim, images: Sequence[EncodedImage], captions: Mapping[str, str], services: EvaluationServices
) -> list[tuple[ImageVerdict, str]]:
    """Returns for each picture whether it shows a label, and who says so; empty if nobody is there to ask.

    The judge of the pictures is asked first, because it knows them without looking. Then the writer reads the captions,
    which are given by the digest of the dataset image. The judge looks at the rest.
    """
    found: dict[int, tuple[ImageVerdict, str]] = {}

    def ask(judge: Judge | None) -> Mapping[int, tuple[ImageVerdict, str]]:
        rest = [number for number in range(len(images)) if number not in found]
        if judge is None or not rest:
            return {}
        verdicts = union(judge.judge([images[number] for number in rest], claim.statements))
        return {number: (verdict, judge.name) for number, verdict in zip(rest, verdicts, strict=True)}

    found |= {number: each for number, each in ask(services.pictures_judge).items() if each[0] is not None}
    texts = [captions.get(image.sources[0], "") if image.sources else "" for image in images]
    described = [number for number, text in enumerate(texts) if text and number not in found]
    try:
        related = services.writer.related(claim, [texts[number] for number in described]) if described else ()
        found |= {number: (position in related, "captions") for position, number in enumerate(described)}
    except UnansweredQuestion:
        pass  # the judge is asked about them
    found |= ask(services.judge)
    return [found.get(number, (None, "")) for number in range(len(images))]


def look_at_exemplars(
    claim: Claim, services: EvaluationServices, captions: Mapping[str, str], photographs: tuple[int, int]
) -> Sightings | None:
    """Looks for the labels in the top exemplars of the unit. None if it has no exemplars, or they cannot be read.

    `photographs` are `Sightings.photographs`.
    """
    if services.exemplars is None:
        return None
    try:
        exemplars = services.exemplars.read(claim.unit).of_kind("top")
    except StoreError as error:
        LOG.warning("which exemplars of %s show its description is not known: %s", claim.unit, error)
        return None
    strongest = sorted(exemplars, key=lambda each: each.rank)[:TOP]
    seen = find_shown(claim, [each.image for each in strongest], captions, services)
    return Sightings(
        exemplars=tuple(verdict for verdict, _ in seen),
        photographs=photographs,
        by=tuple(sorted({by for verdict, by in seen if verdict is not None})),
    )
