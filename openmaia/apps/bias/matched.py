"""Generates pairs of images of a class with and without a context, checks what they show, and scores them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openmaia.apps.bias.contexts import ContextPrompts
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, Generator, Probe, Target
from openmaia.core.units import Unit
from openmaia.evaluation.judging.judges import ImageVerdict, Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One image of a pair, with or without a context such as snow, and a classifier's score of a class for it."""

    prompt: str
    image: EncodedImage
    shows_class: ImageVerdict
    """Whether an object of the class is visible; None if this is unknown."""
    confirmed_by: str
    """The name of the generator or judge that checked `shows_class`, even if it could not tell; empty if none did."""
    missing_terms: tuple[str, ...]
    """Words of the prompt that the generator reports as missing in the image."""
    value: float
    """The classifier's score of the class."""
    raw: float | None
    """The logit from which the score was computed; None if the classifier has no logits."""

    @property
    def is_sound(self) -> bool:
        """Whether the image is known to show the class, and the generator reported no word of its prompt as missing."""
        return self.shows_class is True and not self.missing_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPair:
    """Two generated images that differ only in a context, such as snow."""

    having: PairSide
    """The image with the context."""
    without: PairSide
    """The image without the context."""

    @property
    def is_sound(self) -> bool:
        """Whether both images are known to show the class, and no word of their prompts was reported as missing.

        The generator of the images reports missing words.
        """
        return self.having.is_sound and self.without.is_sound

    @property
    def difference(self) -> float:
        """The classifier's score of the class for the image with the context, minus the score for the other image."""
        return self.having.value - self.without.value

    @property
    def raw_difference(self) -> float | None:
        """The classifier's logit of the class for the image with the context, minus the logit for the other image.

        None if the classifier has no logits.
        """
        return None if self.having.raw is None or self.without.raw is None else self.having.raw - self.without.raw

    @property
    def shared(self) -> tuple[str, ...]:
        """Digests of the dataset images that contribute pixels to both images of the pair.

        In collages, which are composed from parts of dataset images, the object of the class is such a shared part. For
        other images, the result is empty.
        """
        return tuple(sorted(set(self.having.image.sources) & set(self.without.image.sources)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """Turns pairs of prompts, with and without a context, into pairs of images with a classifier's scores."""

    generator: Generator
    target: Target
    """The classifier under study."""
    judge: Judge | None = None
    """Decides whether an image shows the class if the generator does not know. It must not depend on the classifier."""
    knows_class: Callable[[str], bool] = lambda name: True
    """Returns whether a class is in the vocabulary of the generator and the judge. Only then do their confirmations
    that an image shows the class count."""

    def pairs(self, unit: Unit, name: str, prompts: Sequence[ContextPrompts]) -> list[MatchedPair]:
        """Generates and scores one pair of images for each pair of prompts.

        If the generator makes collages, they consist of images of the test split, which agents never see.

        Args:
            unit: The classifier's output for the class.
            name: The name of the class.
            prompts: The pairs of prompts.
        """
        texts = [text for pair in prompts for text in (pair.with_context, pair.without)]
        seeds = [pair.seed for pair in prompts for _ in range(2)]
        requests = [Generation(prompt=text, seed=seed, split="test") for text, seed in zip(texts, seeds, strict=True)]
        images = self.generator.generate(requests)
        activations = self.target.probe([Probe(unit=unit, image=made.image) for made in images])
        verdicts = self._confirm(name, images)
        sides = [
            PairSide(
                prompt=text,
                image=made.image,
                shows_class=verdict,
                confirmed_by=source,
                missing_terms=made.missing_terms,
                value=activation.value,
                raw=activation.raw,
            )
            for text, made, (verdict, source), activation in zip(texts, images, verdicts, activations, strict=True)
        ]
        return [MatchedPair(having=one, without=other) for one, other in zip(sides[::2], sides[1::2], strict=True)]

    def _confirm(self, name: str, images: Sequence[GeneratedImage]) -> list[tuple[ImageVerdict, str]]:
        """Returns for each image whether it shows the class, and the name of the generator or judge that decided."""
        verdicts = [self._verified(name, made) for made in images]
        unknown = [index for index, verdict in enumerate(verdicts) if verdict is None]
        if self.judge is not None and unknown and self.knows_class(name):
            rows = self.judge.judge([images[index].image for index in unknown], [name])
            for index, row in zip(unknown, rows, strict=True):
                verdicts[index] = (row[0], self.judge.name)
        return [verdict or (None, "") for verdict in verdicts]

    def _verified(self, name: str, made: GeneratedImage) -> tuple[ImageVerdict, str] | None:
        missing = {part for word in made.missing_terms for part in word.lower().split()}
        if missing & set(name.lower().split()):
            return False, made.verified_by or "the generator"
        return (True, made.verified_by) if made.verified_by and self.knows_class(name) else None
