"""Prompts about vocabulary words: a word in several contexts, and other words in the very same contexts."""

from collections.abc import Sequence

from openmaia.pictures.vocabulary import BY_NAME, Kind, of_kind

GENERAL = {
    "mammal": ("dog", "horse", "cow", "sheep", "pig", "big cat", "monkey", "rodent"),
    "bird": ("chicken", "penguin"),
    "fruit": ("apple", "citrus"),
    "vehicle": ("car",),
    "tool": ("wrench",),
}
"""Words that include others."""


def article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def figure(carrier: str, colour: str, avoid: Sequence[str] = (), index: int = 0) -> str:
    """A coloured shape on neutral ground, the index-th of those possible, or a coloured pattern."""
    if BY_NAME[carrier].kind is Kind.PATTERN:
        return f"{colour} {carrier}"
    return f"{article(colour)} {carrier} on a {_ground((*avoid, colour), index)} background"


def _ground(avoid: Sequence[str], index: int) -> str:
    """A colour that is none of those that matter here."""
    left = _left(("grey", "white", "black", "brown"), avoid)
    return left[index % len(left)]


def _left(names: Sequence[str], avoid: Sequence[str]) -> list[str]:
    """Those not to avoid; all of them where nothing else is left."""
    return [name for name in names if name not in avoid] or list(names)


def single(word: str, index: int, avoid: Sequence[str] = ()) -> str:
    """The word in the index-th of several contexts; contexts are the same for all words of a kind."""
    kind = BY_NAME[word].kind
    # No patterns: they are in two colours, and the other one would be in every picture.
    carriers = _left(("circle", "square", "star", "triangle", "cross"), avoid)
    inks = _left(("blue", "black", "yellow", "red", "green", "purple"), avoid)
    match kind:
        case Kind.COLOUR:
            return figure(carriers[index % len(carriers)], word, avoid, index)
        case Kind.PATTERN | Kind.SHAPE:
            return figure(word, inks[index % len(inks)], avoid, index)
        case Kind.SCENE:
            things = _left(("circle", "dog", "cup", "bird"), avoid)
            return f"{article(things[index % len(things)])} on {word}"
        case _:
            grounds = _left(("grey", "grass", "sand", "water", "white"), avoid)
            ground = grounds[index % len(grounds)]
            plain = BY_NAME[ground].kind is Kind.COLOUR
            return f"{article(word)} on {f'a {ground} background' if plain else ground}"


def rival(word: str, index: int, avoid: Sequence[str]) -> str:
    """The index-th other word of the same kind, none of those to avoid nor of their relatives."""
    close = {*avoid, word}
    for general, narrower in GENERAL.items():
        if close & {general, *narrower}:
            close |= {general, *narrower}
    if BY_NAME[word].kind is Kind.COLOUR:
        close.add(_ground((*avoid, word), index))  # it would change the ground along with the figure
    same = [w.name for w in of_kind(BY_NAME[word].kind) if w.name != word]
    others = _left(same, tuple(close))
    return others[(index * 5 + 2) % len(others)]
