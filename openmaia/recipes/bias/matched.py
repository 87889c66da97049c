"""Generates pairs of images of a class with and without a context, checks what they show, and scores them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, Generator, Probe, Target
from openmaia.core.units import Unit
from openmaia.evaluation.judging.judges import ImageVerdict, Judge
from openmaia.recipes.bias.contexts import ContextPrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One image of a pair."""

    prompt: str
    image: EncodedImage
    shows_class: ImageVerdict
    """None if this is unknown."""
    confirmed_by: str
    """The generator or judge that checked `shows_class`, even if it could not tell; empty if none did."""
    missing_terms: tuple[str, ...]
    """Words of the prompt that the generator reports as missing."""
    value: float
    """The score of the class."""
    raw: float | None
    """The logit; None if the classifier has none."""

    @property
    def is_sound(self) -> bool:
        """Whether the image is known to show the class, and no word of its prompt is missing."""
        return self.shows_class is True and not self.missing_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPair:
    """Two images that differ only in the context."""

    having: PairSide
    without: PairSide

    @property
    def is_sound(self) -> bool:
        """Whether both images are."""
        return self.having.is_sound and self.without.is_sound

    @property
    def difference(self) -> float:
        """The score with the context minus that without it."""
        return self.having.value - self.without.value

    @property
    def raw_difference(self) -> float | None:
        """The same for the logits; None if the classifier has none."""
        return None if self.having.raw is None or self.without.raw is None else self.having.raw - self.without.raw

    @property
    def shared(self) -> tuple[str, ...]:
        """Digests of the dataset images that contribute pixels to both images."""
        return tuple(sorted(set(self.having.image.sources) & set(self.without.image.sources)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """Turns pairs of prompts into pairs of scored images."""

    generator: Generator
    target: Target
    judge: Judge | None = None
    """Decides whether an image shows the class if the generator does not know. It must not depend on the classifier."""
    knows_class: Callable[[str], bool] = lambda name: True
    """Whether a class is in the vocabulary of the generator and the judge. Only then do their confirmations count."""

    def pairs(self, unit: Unit, name: str, prompts: Sequence[ContextPrompts]) -> list[MatchedPair]:
        """Generates and scores a pair of images of the class `name` for each pair of prompts."""
        texts = [text for pair in prompts for text in (pair.with_context, pair.without)]
        seeds = [pair.seed for pair in prompts for _ in range(2)]
        # A generator that cuts up dataset images may only take those that agents have not seen.
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
        """Returns for each image whether it shows the class, and who decided."""
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
