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


def figure(carrier: str, colour: str) -> str:
    """A coloured shape on neutral ground, or a coloured pattern."""
    if BY_NAME[carrier].kind is Kind.PATTERN:
        return f"{colour} {carrier}"
    ground = "white" if colour == "grey" else "grey"
    return f"{article(colour)} {carrier} on a {ground} background"


def single(word: str, index: int, avoid: Sequence[str] = ()) -> str:
    """The word in the index-th of several contexts; contexts are the same for all words of a kind."""
    kind = BY_NAME[word].kind
    carriers = [name for name in ("circle", "vertical stripes", "square", "star", "dots") if name not in avoid]
    inks = [name for name in ("blue", "black", "yellow", "red", "green", "purple") if name not in avoid]
    match kind:
        case Kind.COLOUR:
            return figure(carriers[index % len(carriers)], word)
        case Kind.PATTERN | Kind.SHAPE:
            return figure(word, inks[index % len(inks)])
        case Kind.SCENE:
            return f"{article(['circle', 'dog', 'cup', 'bird'][index % 4])} on {word}"
        case _:
            grounds = ("a grey background", "grass", "sand", "water", "a white background")
            return f"{article(word)} on {grounds[index % len(grounds)]}"


def rival(word: str, index: int, avoid: Sequence[str]) -> str:
    """The index-th other word of the same kind, none of those to avoid nor of their relatives."""
    close = {*avoid, word}
    for general, narrower in GENERAL.items():
        if close & {general, *narrower}:
            close |= {general, *narrower}
    others = [w.name for w in of_kind(BY_NAME[word].kind) if w.name not in close]
    return others[(index * 5 + 2) % len(others)]
