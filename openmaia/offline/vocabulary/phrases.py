"""Writes prompts that show a vocabulary word in several contexts, and selects other words for the same contexts."""

import hashlib
from collections.abc import Sequence

from openmaia.offline.vocabulary.words import BY_NAME, GENERAL, WordKind, of_kind


def article(noun: str) -> str:
    """Returns a noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def figure(carrier: str, colour: str, avoid: Sequence[str] = (), index: int = 0) -> str:
    """Returns a prompt for a coloured pattern, or for a coloured shape on a neutral background whose colour is not in
    `avoid`."""
    if BY_NAME[carrier].kind is WordKind.PATTERN:
        return f"{colour} {carrier}"
    return f"{article(colour)} {carrier} on a {_ground((*avoid, colour), index)} background"


def _ground(avoid: Sequence[str], index: int) -> str:
    left = _left(("grey", "white", "black", "brown"), avoid)
    return left[index % len(left)]


def _left(names: Sequence[str], avoid: Sequence[str]) -> list[str]:
    # All names if none is left.
    return [name for name in names if name not in avoid] or list(names)


def single(word: str, index: int, avoid: Sequence[str] = ()) -> str:
    """Returns a prompt that shows what a vocabulary word names, in a context: an object on a background, a colour as a
    shape.

    All words of one kind have the same list of contexts. To compare two of them, call the function for each, with the
    same `index` and both words in `avoid`: the two prompts then differ only in the words and their articles.

    Args:
        index: Selects the context, modulo their number.
        avoid: Words that the context must not contain, as far as others are left.
    """
    kind = BY_NAME[word].kind
    # No patterns, because a pattern has two colours, and the second one would be in every image.
    carriers = _left(("circle", "square", "star", "triangle", "cross"), avoid)
    inks = _left(("blue", "black", "yellow", "red", "green", "purple"), avoid)
    match kind:
        case WordKind.COLOUR:
            return figure(carriers[index % len(carriers)], word, avoid, index)
        case WordKind.PATTERN | WordKind.SHAPE:
            return figure(word, inks[index % len(inks)], avoid, index)
        case WordKind.SCENE:
            things = _left(("circle", "fish", "tool", "bird"), avoid)
            return f"{article(things[index % len(things)])} on {word}"
        case _:
            grounds = _left(("grey", "grass", "sand", "water", "white"), avoid)
            ground = grounds[index % len(grounds)]
            plain = BY_NAME[ground].kind is WordKind.COLOUR
            return f"{article(word)} on {f'a {ground} background' if plain else ground}"


def rivals(word: str, avoid: Sequence[str]) -> list[str]:
    """Returns words of the same kind that can replace `word` in a prompt.

    Those in `avoid`, and general words and special cases (see GENERAL) of any of these are left out, unless no word
    would be left.
    """
    close = {*avoid, word}
    for general, narrower in GENERAL.items():
        if close & {general, *narrower}:
            close |= {general, *narrower}
    return _left([w.name for w in of_kind(BY_NAME[word].kind) if w.name != word], tuple(close))


def rival(word: str, index: int, avoid: Sequence[str]) -> str:
    """Returns one of `rivals`: the `index`-th, modulo their number, in a pseudo-random order that depends on `word`.

    For a colour, the colour of the background that `figure` draws for this `index` is avoided as well.
    """
    close = list(avoid)
    if BY_NAME[word].kind is WordKind.COLOUR:
        close.append(_ground((*avoid, word), index))  # it would change the background as well as the figure
    order = sorted(rivals(word, close), key=lambda other: hashlib.sha256(f"{word} {other}".encode()).digest())
    return order[index % len(order)]
