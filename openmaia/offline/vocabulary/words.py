"""The closed vocabulary of the offline services: words, their kinds and their synonyms.

A general word for objects, such as "bird", has at least four images in both splits of the packaged images. An exact
name, such as "owl", has at least one in each. An object of which only one split has an image is no word, because no
image could test it that the agent has not seen.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class WordKind(StrEnum):
    """What a word names."""

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
    wider: str = ""
    """The next more general word, if the vocabulary has one."""
    is_exact: bool = False
    """Whether the packaged images may have a single image of it in each split."""


def _words(kind: WordKind, table: str, *, is_exact: bool = False) -> Iterator[Word]:
    # In `table`, `NAME < WIDER, ALIAS, ALIAS` is a word. Words are separated by semicolons.
    for row in table.split(";"):
        first, *aliases = (part.strip() for part in row.split(","))
        name, _, wider = (part.strip() for part in first.partition("<"))
        yield Word(name=name, kind=kind, aliases=tuple(aliases), wider=wider, is_exact=is_exact)


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
        "bird; poultry < bird, turkey, goose; fish; cow < hoofed animal, bull;"
        "hoofed animal < mammal, hoofed mammal, ungulate; carnivore < mammal, predator, beast of prey; mammal, animal; fruit;"
        "vegetable; flower < plant, blossom; plant, tree; musical instrument, instrument; ball; vehicle; tool;"
        "wrench < tool, pliers; gravestone, tombstone; planet; road sign, traffic sign; building, monument, tower",
    ),
    *_words(
        WordKind.OBJECT,
        # Mushrooms and insects would have images, too. The closed-form units need objects without a word.
        "heron < bird; penguin < bird; parrot < bird; owl < bird; toucan < bird; chicken < poultry, hen, rooster;"
        "duck < poultry, drake; frog; lizard; chameleon < lizard;"
        "bison < cow; gnu < cow, wildebeest; pig < hoofed animal; sheep < hoofed animal, lamb;"
        "camel < hoofed animal, dromedary; deer < hoofed animal; donkey < hoofed animal; giraffe < hoofed animal;"
        "rhinoceros < mammal, rhino; lion < carnivore; tiger < carnivore; dog < carnivore, puppy; cat < carnivore, kitten;"
        "rabbit < mammal, bunny; rodent < mammal; gorilla < mammal; dolphin < mammal;"
        "kangaroo < mammal; koala < mammal;"
        "apple < fruit; apricot < fruit; strawberry < fruit; citrus fruit < fruit; pepper < vegetable; lettuce < vegetable;"
        "garlic < vegetable; nut; guitar < musical instrument; scissors < tool; hammer < tool, mallet; screwdriver < tool;"
        "measuring tape < tool, tape measure; cup, mug; garbage can, trash can, dustbin; mailbox, post box;"
        "fireman, firefighter; car < vehicle, automobile; truck < vehicle, lorry; moon < planet; dam; windmill; solar panel;"
        "pyramid < building; castle < building; temple < building",
        is_exact=True,
    ),
    *_words(
        WordKind.SCENE,
        "grass, meadow, lawn; sand, beach, desert; water, sea; sky; snow; wood; brick, brick wall; stone, rock",
    ),
)

BY_NAME: Mapping[str, Word] = {word.name: word for word in WORDS}


def wider(name: str) -> list[str]:
    """Returns the more general words, the next one first."""
    found: list[str] = []
    while above := BY_NAME[found[-1] if found else name].wider:
        found.append(above)
    return found


GENERAL: Mapping[str, tuple[str, ...]] = {
    general: narrower for general in BY_NAME if (narrower := tuple(name for name in BY_NAME if general in wider(name)))
}
"""General words, each with all words for its special cases."""


def of_kind(*kinds: WordKind) -> list[Word]:
    """Returns the words of some kinds."""
    return [word for word in WORDS if word.kind in kinds]


def relatives(names: Iterable[str]) -> set[str]:
    """Returns words with their more general words and their special cases."""
    return {other for name in names for other in (name, *wider(name), *GENERAL.get(name, ()))}


# A label may contain these besides words of the vocabulary and still be covered by it.
_FILLERS = frozenset(
    "a an and any at background backgrounds beside by color colored colors colour coloured colours front image images in near "
    "next object objects of on or pattern patterns photo photos picture pictures scene scenes shape shapes some the thing "
    "things to with".split()
)


def find(text: str) -> list[Word]:
    """Returns the vocabulary words in a text, each once, in the order of the text.

    Synonyms count as their word. A longer name takes precedence over a name that it contains.
    """
    return list(_find(text)[0])


def covers(text: str) -> bool:
    """Returns whether a text has vocabulary words, and besides them only _FILLERS."""
    words, rest = _find(text)
    is_latin = not re.search(r"[^\W\d_a-z]", text.lower())
    return bool(words) and is_latin and set(re.findall(r"[a-z]+", rest)) <= _FILLERS


@lru_cache(maxsize=4096)
def _find(text: str) -> tuple[tuple[Word, ...], str]:
    # Returns the rest of the text, too: in lower case, with underscores in place of the words.
    matches: dict[str, tuple[int, Word]] = {}
    rest = " " + re.sub(r"[^a-z-]+", " ", text.lower()) + " "
    for name, expression, word in _NAMES:
        match = expression.search(rest) if name in rest else None
        if match:
            rest = expression.sub(lambda found: "_" * len(found[0]), rest)
            matches.setdefault(word.name, (match.start(), word))
    return tuple(word for _, word in sorted(matches.values(), key=lambda item: item[0])), rest


def _names(words: Sequence[Word]) -> list[tuple[str, re.Pattern[str], Word]]:
    # Longest spelling first. Compiled once, because there are more expressions than the cache of the module `re` holds.
    spelled = [
        (name, re.compile(rf"(?<=[ -]){re.escape(name)}(?:e?s)?(?=[ -])"), word)
        for word in words
        for name in (word.name, *word.aliases)
    ]
    return sorted(spelled, key=lambda item: -len(item[0]))


_NAMES = _names(WORDS)
