"""Writes prompts that show a vocabulary word in several contexts, and selects other words for the same contexts."""

import hashlib
from collections.abc import Sequence

from openmaia.offline.vocabulary.words import BY_NAME, GENERAL, WordKind, of_kind


def article(noun: str) -> str:
    """Returns a noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def figure(carrier: str, colour: str, avoid: Sequence[str] = (), index: int = 0) -> str:
    """Returns a prompt for a coloured pattern, or for a coloured shape on a neutral background.

    Args:
        carrier: The pattern or shape.
        colour: Its colour.
        avoid: Colours that the background must not have.
        index: Selects one of the remaining backgrounds.
    """
    if BY_NAME[carrier].kind is WordKind.PATTERN:
        return f"{colour} {carrier}"
    return f"{article(colour)} {carrier} on a {_ground((*avoid, colour), index)} background"


def _ground(avoid: Sequence[str], index: int) -> str:
    """Returns the index-th neutral colour that is not in `avoid`."""
    left = _left(("grey", "white", "black", "brown"), avoid)
    return left[index % len(left)]


def _left(names: Sequence[str], avoid: Sequence[str]) -> list[str]:
    """Returns the names that are not in `avoid`, or all names if none is left."""
    return [name for name in names if name not in avoid] or list(names)


def single(word: str, index: int, avoid: Sequence[str] = ()) -> str:
    """Returns a prompt that shows what a vocabulary word names, in a context.

    For example, the context of an object is a background, and the context of a colour is a shape. All words of one kind
    (such as all colours) have the same list of contexts. Two words of one kind can therefore be compared: call the
    function for each word, with the same `index` and with both words in `avoid`. The two prompts then differ only in
    the words and their articles.

    Args:
        word: The vocabulary word.
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
    """Returns words that can replace `word` in a prompt: other words of its kind, such as other colours.

    The words in `avoid` are left out. Words that are related to `word` or to a word in `avoid` are left out, too: a
    general word and all of its special cases (see GENERAL) are related. If no word is left, all other words of the kind
    are returned.
    """
    close = {*avoid, word}
    for general, narrower in GENERAL.items():
        if close & {general, *narrower}:
            close |= {general, *narrower}
    return _left([w.name for w in of_kind(BY_NAME[word].kind) if w.name != word], tuple(close))


def rival(word: str, index: int, avoid: Sequence[str]) -> str:
    """Returns a word that can replace `word` in a prompt: one of those that `rivals` returns, such as another colour.

    Args:
        word: The word to replace.
        index: Selects the result, modulo the number of candidates, from a pseudo-random order that depends on `word`.
        avoid: Words that must not be returned. For a colour, the colour of the background that `figure` draws for this
            `index` is avoided as well.
    """
    close = list(avoid)
    if BY_NAME[word].kind is WordKind.COLOUR:
        close.append(_ground((*avoid, word), index))  # it would change the background as well as the figure
    order = sorted(rivals(word, close), key=lambda other: hashlib.sha256(f"{word} {other}".encode()).digest())
    return order[index % len(order)]
