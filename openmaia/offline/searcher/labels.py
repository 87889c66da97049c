"""Labels in the words of the grammar: what they name, and what shows them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from openmaia.offline.scenes.captions import PATTERN_WORDS, PLACE_PHRASES, TIME_PHRASES
from openmaia.offline.scenes.grammar import Reader, Token, read, tokens
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS, TIMELESS
from openmaia.offline.scenes.truth import holds
from openmaia.offline.scenes.words import STRIPES, lexicon, members, names

_CONTENT = ("colour", "pattern", "place", "time", "weather", "style", "size", "unknown")  # `Token.what`
_USUAL = ("clear", "flat")  # what every scene is of which nothing else is said
_JOINING = ("or", "either")  # outside of the grammar, and name nothing
_KEPT = 4096  # texts
EXCEPT = " without "
"""Stands in a label before what must not be shown, as in "boat without night"."""


@cache
def single() -> Mapping[str, str]:
    """Returns all labels of one word that a search tries, with what each is."""
    found = {name: tokens(name)[0][-1].what for name in names() if name not in _USUAL}
    return {**{name: what for name, what in found.items() if what != "size"}, "stripes": "pattern"}


def sayable(without: Collection[str]) -> tuple[str, ...]:
    """Returns the labels of `single` that are not in `without`, and name something that is not."""
    return tuple(each for each in single() if each not in without and not terms(each) <= {*without})


@lru_cache(_KEPT)
def terms(text: str) -> frozenset[str]:
    """Returns what a text names, a wider word as all kinds that it names, and the words outside of the grammar.

    So "animal" has a term in common with "dog", and "dog" none with "cat".
    """
    return frozenset(name for each in tokens(text)[0] if each.text not in _JOINING for name in _narrower(each))


def content_lexicon() -> Mapping[str, frozenset[str]]:
    """Returns the names of `terms` for all words and phrases of the grammar that have some."""
    found = {
        " ".join(words): frozenset(_narrower(Token(text="", what=what, name=name)))
        for words, ((what, name), _) in lexicon().items()
    }
    return {phrase: names for phrase, names in found.items() if names}


def narrower(name: str) -> Sequence[str]:
    """Returns the kinds or patterns that a word names."""
    return STRIPES if name == "stripes" else members(name) or [name]


def _narrower(token: Token) -> Iterable[str]:
    if token.what in ("kind", "group") or token.name == "stripes":
        return narrower(token.name)
    return [token.name] if token.what in _CONTENT else []


@lru_cache(_KEPT)
def scene_of(sentence: str) -> Scene:
    """Returns the scene that a sentence describes, not settled. Sentences leave out what is usual, as captions do."""
    scene = read(sentence, 0)[0]
    time = scene.time or ("" if scene.place in ("", *TIMELESS) else "day")
    return replace(scene, time=time, weather=scene.weather or "clear", style=scene.style or "flat")


@lru_cache(32 * _KEPT)
def shows(sentence: str, label: str) -> bool:
    """Returns whether a sentence says that its picture shows a label."""
    return holds(scene_of(sentence), label) is True


@lru_cache(_KEPT)
def shown(sentence: str) -> frozenset[str]:
    """Returns the labels of `single` that hold of a picture according to a sentence."""
    scene = scene_of(sentence)
    found = {scene.time, scene.weather, scene.style, scene.place}
    if scene.place and scene.place not in INDOORS:
        found.add("sky")
    for figure in scene.figures:
        found |= {figure.kind, *kinds()[figure.kind].wider}
    for paint in scene.paints:
        found |= {paint.colour, paint.second, paint.pattern}
    if found & {*STRIPES}:
        found.add("stripes")
    return frozenset(found & single().keys())


def combined(first: str, second: str) -> str:
    """Returns the label of two words, such as "red boat" or "boat on the sea". Empty if they do not combine."""
    by_what = {single()[each]: each for each in (first, second)}
    noun = by_what.get("kind") or by_what.get("group") or ""
    colour, pattern, place, time = (by_what.get(each, "") for each in ("colour", "pattern", "place", "time"))
    if len(by_what) < 2 or not by_what.keys() <= {"kind", "group", "colour", "pattern", "place", "time"}:
        return ""
    if colour and pattern:
        return f"{colour} {pattern}"
    if (colour or pattern) and noun:
        is_bare = bool(colour) and not kinds()[narrower(noun)[0]].colours
        return "" if is_bare else f"{colour or PATTERN_WORDS.get(pattern, pattern)} {noun}"
    if place and (noun or time in TIME_PHRASES):
        return f"{noun}{' ' if noun else ''}{PLACE_PHRASES[place]}{TIME_PHRASES.get(time, '')}"
    return f"{noun}{TIME_PHRASES[time]}" if noun and time in TIME_PHRASES else ""


@lru_cache(_KEPT)
def ask(label: str) -> Reader:
    """Returns what a label asks for."""
    return Reader(label, 0, is_question=True)
