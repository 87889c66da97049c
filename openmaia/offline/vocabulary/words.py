"""The closed vocabulary of the offline services: words, their kinds and their synonyms.

The collage generator maps words to images that show them. The vocabulary names an object only if both halves of the
packaged images, the explore and the test split, have at least four images of it. The module
`openmaia.offline.experimenter.eyes` maps the pixels of an image to evidence that a word is visible.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class WordKind(StrEnum):
    """The kind of thing that a word names."""

    COLOUR = "colour"
    PATTERN = "pattern"
    SHAPE = "shape"
    OBJECT = "object"
    SCENE = "scene"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of the vocabulary with its synonyms."""

    name: str
    kind: WordKind
    aliases: tuple[str, ...] = ()


def _words(kind: WordKind, table: str) -> tuple[Word, ...]:
    rows = (row.split(",") for row in table.split(";"))
    return tuple(
        Word(name=row[0].strip(), kind=kind, aliases=tuple(alias.strip() for alias in row[1:])) for row in rows
    )


WORDS: tuple[Word, ...] = (
    *_words(WordKind.COLOUR, "red; orange; yellow; green; blue; purple, violet; pink; brown; black; white; grey, gray"),
    *_words(
        WordKind.PATTERN,
        "horizontal stripes, horizontal lines, horizontally striped; vertical stripes, vertical lines, vertically striped;"
        "diagonal stripes, diagonal lines, diagonally striped; checkerboard, checkered, checks; dots, dotted, polka dots;"
        "grid, mesh, net; rings, concentric circles; noise, grainy, speckles",
    ),
    *_words(
        WordKind.SHAPE,
        "circle, disc, disk, round shape; square, box shape; triangle, triangular shape; star; cross; bar",
    ),
    *_words(
        WordKind.OBJECT,
        "bird; poultry, chicken, hen, rooster, turkey, duck, goose; fish; cow, bull, bison, gnu;"
        "hoofed animal, hoofed mammal, ungulate; carnivore, predator, beast of prey; mammal, animal; fruit; vegetable;"
        "flower, blossom; plant, tree; musical instrument, instrument; ball; vehicle; tool; wrench, pliers;"
        "gravestone, tombstone; planet; road sign, traffic sign; building, monument, tower",
    ),
    *_words(
        WordKind.SCENE,
        "grass, meadow, lawn; sand, beach, desert; water, sea; sky; snow; wood; brick, brick wall; stone, rock",
    ),
)

BY_NAME: Mapping[str, Word] = {word.name: word for word in WORDS}


def of_kind(*kinds: WordKind) -> list[Word]:
    """Returns the words of these kinds in the vocabulary, in the order of WORDS."""
    return [word for word in WORDS if word.kind in kinds]


FILLERS = frozenset(
    "a an and any at background backgrounds beside by color colored colors colour coloured colours front image images in near "
    "next object objects of on or pattern patterns photo photos picture pictures scene scenes shape shapes some the thing "
    "things to with".split()
)
"""Words that a label may contain in addition to those of the vocabulary and still be covered by it (see `covers`)."""


def find(text: str) -> list[Word]:
    """Returns the vocabulary words in a text, each once, in the order of the text.

    Synonyms count as their word. A longer name takes precedence over a name that it contains.
    """
    return list(_find(text)[0])


def covers(text: str) -> bool:
    """Returns whether a text has vocabulary words, and besides them only FILLERS, such as articles and "image"."""
    words, rest = _find(text)
    is_latin = not re.search(r"[^\W\d_a-z]", text.lower())
    return bool(words) and is_latin and set(re.findall(r"[a-z]+", rest)) <= FILLERS


@lru_cache(maxsize=4096)
def _find(text: str) -> tuple[tuple[Word, ...], str]:
    """Returns the vocabulary words in a text, and the text in lower case with underscores in their place."""
    matches: dict[str, tuple[int, Word]] = {}
    rest = " " + re.sub(r"[^a-z-]+", " ", text.lower()) + " "
    for name, expression, word in _NAMES:
        match = expression.search(rest) if name in rest else None
        if match:
            rest = expression.sub(lambda found: "_" * len(found[0]), rest)
            matches.setdefault(word.name, (match.start(), word))
    return tuple(word for _, word in sorted(matches.values(), key=lambda item: item[0])), rest


def _names(words: Sequence[Word]) -> list[tuple[str, re.Pattern[str], Word]]:
    """Returns each spelling with its regular expression and its word, the longest spelling first.

    The expressions are compiled only once, because there are more of them than the cache of the module `re` holds.
    """
    spelled = [
        (name, re.compile(rf"(?<=[ -]){re.escape(name)}(?:e?s)?(?=[ -])"), word)
        for word in words
        for name in (word.name, *word.aliases)
    ]
    return sorted(spelled, key=lambda item: -len(item[0]))


_NAMES = _names(WORDS)
