"""From a claim to pairs of prompts: an object of the class with the claimed context, and the same with another in its place.

The two of a pair have equally many figures and share a seed, so that an object of the class has the same size, place and,
where the generator can, the same pixels in both. What is compared is the context with others of its kind: `beside a
ball` with `beside a drum`, for anything beside an object makes it smaller.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from openmaia.evaluate.asking import Asker, Question, listed_pairs
from openmaia.evaluate.asking import text as question_text
from openmaia.pictures.phrases import article, rival
from openmaia.pictures.vocabulary import BY_NAME, Kind, Word, find
from openmaia.tools.seeds import seed

PLACES = {
    "small": ("small", "tiny", "far away"),
    "large": ("large", "big", "close-up", "close up", "closeup"),
    "left": ("left",),
    "right": ("right",),
    "top": ("top",),
    "bottom": ("bottom",),
}
"""Sizes and places that a generator understands, as people say them."""

GROUNDS = ("grey", "grass", "sand", "white", "stone", "blue")
"""Where the claim says nothing about the ground: the same for both of a pair."""

PLAIN = ("grey", "white", "brown")
OTHERS = ("cup", "flower", "guitar", "building", "road sign", "fish")
"""What takes the place of the class in pictures that must not be taken for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A claim. label: as the agent wrote it. text: without its sign. sign: +1 raises, -1 lowers, 0 where it was not said."""

    label: str
    text: str
    sign: int

    @classmethod
    def of(cls, label: str) -> "Context":
        found = re.match(r"\s*[\"'`*]*(?P<sign>[+\-−–])?\s*(?P<text>.*?)[\"'`*\s.]*$", label, re.DOTALL)
        assert found is not None
        sign = {"+": 1, "": 0}.get(found["sign"] or "", -1)
        return cls(label=label, text=found["text"], sign=sign)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """with_context, without: two prompts drawn from one seed. absent: the class is replaced by something else in both."""

    with_context: str
    without: str
    seed: int
    absent: bool = False


class Writer(Protocol):
    @property
    def name(self) -> str: ...

    def write(self, name: str, context: Context, n: int, run_seed: int, *, absent: bool = False) -> list[Prompts]:
        """n pairs for a class and a context. absent: without an object of the class. Raises Unanswered where no usable
        prompts came."""
        ...


class RuleWriter:
    """No language model: it reads the context's words of the vocabulary, sizes and places; of anything else it makes the
    prompt `a CLASS, CONTEXT`, and leaves it to the generator whether it can draw that."""

    name = "rules (no language model)"

    def write(self, name: str, context: Context, n: int, run_seed: int, *, absent: bool = False) -> list[Prompts]:
        parts = _Parts.read(name, context.text)
        shown = [_other(name, at) for at in range(n)] if absent else [name] * n
        found = [(parts.prompt(one, at), parts.rivals(name, at).prompt(one, at)) for at, one in enumerate(shown)]
        return _seeded(found, run_seed, absent)


@dataclass(frozen=True, slots=True)
class ModelWriter:
    """A language model. Asked for up to SERVED pairs, which are drawn several times where more are wanted."""

    asker: Asker

    SERVED = 20

    @property
    def name(self) -> str:
        return self.asker.name

    def write(self, name: str, context: Context, n: int, run_seed: int, *, absent: bool = False) -> list[Prompts]:
        count = min(n, self.SERVED)
        subject = f"no {name}, but something else in its place" if absent else f"{article(name)}, clearly visible"
        words = question_text("contexts", subject=subject, context=context.text, n=count)
        words += "\n" + question_text("lines", n=count)
        question = Question(parts=(words,), seed=seed(run_seed, "evaluate", words, 0) >> 32)
        pairs = self.asker.ask(question, lambda answer: listed_pairs(answer, count))
        return _seeded(list(islice(cycle(pairs), n)), run_seed, absent)


def _seeded(pairs: Sequence[tuple[str, str]], run_seed: int, absent: bool) -> list[Prompts]:
    """Each pair has a seed of its own, repeated ones too."""
    return [
        Prompts(with_context=one, without=other, absent=absent, seed=seed(run_seed, "evaluate", f"{one} | {other}", at))
        for at, (one, other) in enumerate(pairs)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a context consists of, "" for what it says nothing about. rest: words that nobody here understands, where there
    is nothing else."""

    ground: str = ""
    thing: str = ""
    colour: str = ""
    place: str = ""
    rest: str = ""

    @classmethod
    def read(cls, name: str, text: str) -> "_Parts":
        own = {word.name for word in find(name)}
        words = [word for word in find(text) if word.name not in own]
        thing = next((word.name for word in words if word.kind in (Kind.OBJECT, Kind.SHAPE)), "")
        colours = [word.name for word in words if word.kind is Kind.COLOUR]
        tint = next((colour for colour in colours if _qualifies(colour, thing, words, text)), "")
        grounds = [word.name for word in words if word.kind in (Kind.SCENE, Kind.PATTERN)]
        ground = (*grounds, *(colour for colour in colours if colour != tint), "")[0]
        said = text.lower()
        place = next((key for key, ways in PLACES.items() if any(re.search(rf"\b{w}\b", said) for w in ways)), "")
        known = bool(thing or ground or place)
        return cls(ground=ground, thing=thing, colour=tint, place=place, rest="" if known else text)

    def prompt(self, name: str, at: int) -> str:
        if self.rest:
            return f"{article(name)}, {self.rest}"
        ground = self.ground or GROUNDS[at % len(GROUNDS)]
        subject = _placed(name, self.place)
        thing = f" next to {article(f'{self.colour} {self.thing}'.strip())}" if self.thing else ""
        return f"{subject}{thing} on {f'{article(ground)} background' if _is_plain(ground) else ground}"

    def rivals(self, name: str, at: int) -> "_Parts":
        """Everything that the context names replaced by the at-th other of its kind; what it says in words of its own is
        left out."""
        if self.rest:
            return _Parts(ground=PLAIN[at % len(PLAIN)])
        own = [word.name for word in find(name)]
        avoid = (*own, *filter(None, (self.thing, self.ground, self.colour)))
        places = [place for place in PLACES if place != self.place]
        return _Parts(
            ground=rival(self.ground, at, avoid) if self.ground else "",
            thing=rival(self.thing, at, avoid) if self.thing else "",
            colour=rival(self.colour, at, avoid) if self.colour else "",
            place=places[at % len(places)] if self.place else "",
        )


def _qualifies(colour: str, thing: str, words: Sequence[Word], text: str) -> bool:
    """Whether a colour is the thing's, as in `a red ball`, and not the ground's."""
    spelled = next(((word.name, *word.aliases) for word in words if word.name == thing), ())
    return any(re.search(rf"\b{colour}\s+{re.escape(name)}", text.lower()) for name in spelled)


def _is_plain(ground: str) -> bool:
    return BY_NAME[ground].kind is Kind.COLOUR


def _placed(name: str, place: str) -> str:
    if place in ("small", "large"):
        return f"a {place} {name}"
    return f"{article(name)} at the {place}" if place else article(name)


def _other(name: str, at: int) -> str:
    own = {word.name for word in find(name)} | {name}
    left = [other for other in OTHERS if other not in own]
    return left[at % len(left)]
