"""Matched pictures with and without a context, who says that the class is there, and what the classifier scores them."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.apps.bias.contexts import Prompts
from openmaia.evaluate.judges import Judge, Verdict
from openmaia.images import Picture
from openmaia.pictures.vocabulary import find
from openmaia.services import Drawn, Generation, Generator, Probe, Target
from openmaia.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One picture of a pair. there: whether an object of the class is, as confirmed_by says; None where nobody knows.
    undrawn: words that the prompt has and the picture lacks. value: the score; raw: the logit behind it."""

    prompt: str
    picture: Picture
    there: Verdict
    confirmed_by: str
    undrawn: tuple[str, ...]
    value: float
    raw: float | None

    @property
    def is_sound(self) -> bool:
        """Whether it shows what was asked, the class above all."""
        return self.there is True and not self.undrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    having: Side
    without: Side

    @property
    def is_sound(self) -> bool:
        return self.having.is_sound and self.without.is_sound

    @property
    def difference(self) -> float:
        """Of the scores."""
        return self.having.value - self.without.value

    @property
    def raw_difference(self) -> float | None:
        """Of the logits."""
        if self.having.raw is None or self.without.raw is None:
            return None
        return self.having.raw - self.without.raw

    @property
    def shared(self) -> tuple[str, ...]:
        """Digests of the files that both were made from: the object of the class, where a collage made them."""
        return tuple(sorted(set(self.having.picture.sources) & set(self.without.picture.sources)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """judge: independent of the classifier; None for nobody."""

    generator: Generator
    target: Target
    judge: Judge | None = None

    def pairs(self, unit: Unit, name: str, prompts: Sequence[Prompts]) -> list[Pair]:
        """name: of the class. Pictures come from the half that is kept for tests."""
        sides = [text for one in prompts for text in (one.with_context, one.without)]
        seeds = [one.seed for one in prompts for _ in range(2)]
        requests = [
            Generation(prompt=text, seed=number, half="test") for text, number in zip(sides, seeds, strict=True)
        ]
        drawn = self.generator.generate(requests)
        answers = self.target.probe([Probe(unit=unit, picture=one.picture) for one in drawn])
        there = self._confirmed(name, drawn)
        made = [
            Side(
                prompt=text,
                picture=one.picture,
                there=verdict,
                confirmed_by=by,
                undrawn=one.undrawn,
                value=answer.value,
                raw=answer.raw,
            )
            for text, one, (verdict, by), answer in zip(sides, drawn, there, answers, strict=True)
        ]
        return [Pair(having=one, without=other) for one, other in zip(made[::2], made[1::2], strict=True)]

    def _confirmed(self, name: str, drawn: Sequence[Drawn]) -> list[tuple[Verdict, str]]:
        """A generator that knows what it drew is believed first, and asked a judge where it does not."""
        known = [_vouched(name, one) for one in drawn]
        open_ones = [at for at, one in enumerate(known) if one is None]
        if self.judge is None or not open_ones or not is_own_word(name):
            return [one or (None, "") for one in known]
        verdicts = self.judge.judge([drawn[at].picture for at in open_ones], [name])
        said = {at: (row[0], self.judge.name) for at, row in zip(open_ones, verdicts, strict=True)}
        return [said[at] if one is None else one for at, one in enumerate(known)]


def _vouched(name: str, drawn: Drawn) -> tuple[Verdict, str] | None:
    missing = {part for word in drawn.undrawn for part in word.lower().split()}
    if missing & set(name.lower().split()):
        return False, drawn.vouched or "the generator"
    return (True, drawn.vouched) if drawn.vouched and is_own_word(name) else None


def is_own_word(name: str) -> bool:
    """False for a class that the vocabulary knows by a wider word alone: it would draw, and see, any big cat for a lion."""
    return all(word.name in name.lower() for word in find(name))
