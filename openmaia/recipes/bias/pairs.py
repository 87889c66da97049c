"""Pairs of generated images that differ only in a claimed context, and a classifier's scores of the class on them.

Both prompts of a pair show equally many objects and share a seed, so that the object has the same size and position, and
with some generators the same pixels. The other context is of the same kind, for example `beside a drum` for `beside a
ball`, because anything beside an object makes the object smaller.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Protocol

from openmaia.agent.tools.seeds import seed
from openmaia.assembly.models import Models
from openmaia.config.schema import prompt_writer, rules, test_generator
from openmaia.core.components import of_config
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, Generator, Probe, Target
from openmaia.core.units import Unit
from openmaia.evaluation.judging.detector import detector_judge
from openmaia.evaluation.judging.judges import ImageVerdict, Judge
from openmaia.evaluation.language_model import LanguageModel, Question, fill_template, parse_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedContext:
    """An agent's claim that a context raises or lowers the score of a class."""

    label: str
    """The claim as the agent wrote it."""
    text: str
    """Without the sign."""
    sign: int
    """1 if the context raises the score, -1 if it lowers it, 0 if the claim has no sign."""

    @classmethod
    def parse(cls, label: str) -> "ClaimedContext":
        """Parses a claim such as "+ snow" or "- a ball beside it"."""
        match = re.match(r"\s*[\"'`*]*(?P<sign>[+\-−–])?\s*(?P<text>.*?)[\"'`*\s.]*$", label, re.DOTALL)
        assert match is not None
        sign = {"+": 1, "": 0}.get(match["sign"] or "", -1)
        return cls(label=label, text=match["text"], sign=sign)


class ContextWriter(Protocol):
    """Writes pairs of prompts: a class in a context, and in another one."""

    @property
    def name(self) -> str:
        """In stored results."""
        ...

    def write(
        self, name: str, context: str, n: int, run_seed: int, *, absent: bool = False
    ) -> Sequence[tuple[str, str]]:
        """Writes n pairs of prompts for the class `name`, with and without the context.

        Args:
            absent: Whether the prompts show no object of the class, but something else in its place.

        Raises:
            UnansweredQuestion: No usable prompts could be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelContextWriter:
    """Asks a language model for at most MAX_ASKED pairs, which are repeated if more are needed."""

    model: LanguageModel

    MAX_ASKED = 20

    @property
    def name(self) -> str:
        return self.model.name

    def write(
        self, name: str, context: str, n: int, run_seed: int, *, absent: bool = False
    ) -> Sequence[tuple[str, str]]:
        count = min(n, self.MAX_ASKED)
        subject = f"no {name}, but something else in its place" if absent else f"one {name}, clearly visible"
        words = fill_template("contexts", subject=subject, context=context, n=count)
        words += "\n" + fill_template("lines", n=count)
        pairs = self.model.ask(Question.of(words, run_seed=run_seed), lambda answer: parse_pairs(answer, count))
        return list(islice(cycle(pairs), n))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One image of a pair."""

    prompt: str
    image: EncodedImage
    shows_class: ImageVerdict
    """None if this is unknown."""
    confirmed_by: str = ""
    """The generator or judge that checked `shows_class`, even if it could not tell; empty if none did. Not stored."""
    missing_terms: tuple[str, ...]
    """Words of the prompt that the generator reports as missing."""
    value: float
    """The score of the class."""
    raw: float | None
    """The logit; None if the classifier has none."""
    predicted: str = ""
    """The predicted class of a misclassified image, or "no CLASS" of a classifier with independent outputs."""

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
    """Makes pairs of scored images."""

    writer: ContextWriter
    generator: Generator
    target: Target
    judge: Judge | None = None
    """Decides whether an image shows the class if the generator does not know. It must not depend on the classifier."""
    knows_class: Callable[[str], bool] | None = None
    """Whether a class is in the vocabulary of the generator and the judge. Only then do their confirmations count. None:
    they have no vocabulary."""

    @classmethod
    def of(cls, models: Models) -> "Matcher":
        """Builds a matcher whose judge is the detector of the section `bias`, or else that of the config."""
        generator = test_generator(models.config)
        detector, model = models.config.bias.detector, models.language_model
        writer: ContextWriter | Any = ModelContextWriter(model) if model else None
        knows_class = None
        if model is None or of_config(generator).vocabulary(generator) is not None:
            chosen: Any = of_config(prompt_writer(models.config))
            named: Any = chosen if hasattr(chosen, "contexts") else of_config(rules(models.config))
            rule_writer, knows_class = named.contexts(generator)
            writer = writer or rule_writer
        return cls(
            writer=writer,
            generator=models.test_generator,
            target=models.target,
            judge=detector_judge(detector, "", generator.size) if detector else models.judge,
            knows_class=knows_class,
        )

    def pairs(
        self, unit: Unit, name: str, context: ClaimedContext, n: int, run_seed: int, *, absent: bool = False
    ) -> list[MatchedPair]:
        """Makes n pairs of images of the class `name`, whose output unit is `unit`.

        Args:
            absent: Whether something else is asked for in the place of an object of the class.

        Raises:
            UnansweredQuestion: No usable prompts could be written.
        """
        prompts = self.writer.write(name, context.text, n, run_seed, absent=absent)
        seeds = [seed(run_seed, "evaluate", f"{one} | {other}", at) for at, (one, other) in enumerate(prompts)]
        # A generator that cuts up dataset images may only take those that agents have not seen.
        requests = [
            Generation(prompt=text, seed=number, split="test")
            for pair, number in zip(prompts, seeds, strict=True)
            for text in pair
        ]
        images = self.generator.generate(requests)
        activations = self.target.probe([Probe(unit=unit, image=made.image) for made in images])
        sides = [
            PairSide(
                prompt=request.prompt,
                image=made.image,
                shows_class=verdict,
                confirmed_by=source,
                missing_terms=made.missing_terms,
                value=activation.value,
                raw=activation.raw,
            )
            for request, made, (verdict, source), activation in zip(
                requests, images, self._confirm(name, images), activations, strict=True
            )
        ]
        return [MatchedPair(having=one, without=other) for one, other in zip(sides[::2], sides[1::2], strict=True)]

    def _confirm(self, name: str, images: Sequence[GeneratedImage]) -> list[tuple[ImageVerdict, str]]:
        """Returns for each image whether it shows the class, and who decided."""
        verdicts = [self._verified(name, made) for made in images]
        unknown = [index for index, verdict in enumerate(verdicts) if verdict is None]
        if self.judge is not None and unknown and self._knows(name):
            rows = self.judge.judge([images[index].image for index in unknown], [name])
            for index, row in zip(unknown, rows, strict=True):
                verdicts[index] = (row[0], self.judge.name)
        return [verdict or (None, "") for verdict in verdicts]

    def _verified(self, name: str, made: GeneratedImage) -> tuple[ImageVerdict, str] | None:
        missing = {part for word in made.missing_terms for part in word.lower().split()}
        if missing & set(name.lower().split()):
            return False, made.verified_by or "the generator"
        return (True, made.verified_by) if made.verified_by and self._knows(name) else None

    def _knows(self, name: str) -> bool:
        return self.knows_class is None or self.knows_class(name)
