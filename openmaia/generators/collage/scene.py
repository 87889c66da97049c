"""What is in a collage, read from a prompt. A scene is plain data and travels with its picture as the recipe."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from openmaia.pictures.vocabulary import BY_NAME, Kind, find

COUNTS = {"two": 2, "pair": 2, "three": 3, "four": 4, "several": 4, "many": 6, "five": 5, "six": 6}
SIZES = {"tiny": 0.25, "small": 0.35, "large": 0.85, "big": 0.85, "huge": 0.95}
PLACES = {"left": (-0.25, 0.0), "right": (0.25, 0.0), "top": (0.0, -0.25), "bottom": (0.0, 0.25)}
STYLES = {"photo": "", "picture": "", "image": "", "close-up": "large", "closeup": "large"}
IGNORED = frozenset(
    "a an the of with and or in on at to by next beside near some its it is are there showing shows plain solid colored "
    "coloured background surface against over under front close up middle center centre corner side shape shaped pattern "
    "patterned texture scene view that this object objects thing things one single very filled full".split()
)
MAX_PHRASES, MAX_WORDS = 12, 24
"""Of one prompt, and of unknown words in one phrase: what lies beyond is reported as not drawn. A prompt is written by an
agent, and everybody waits while it is read."""
GROUND = re.compile(
    r"\b(?:on|in|against|over|under)\s+(?:an?\s+|the\s+)?(?P<what>[a-z -]+?)(?:\s+background)?(?=$|[.,;])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """what: a vocabulary word or any noun; colour, pattern: vocabulary words or "". size: of the shorter side of the
    picture, 0 for the usual. place: shift of the centre in shares of the picture."""

    what: str
    colour: str = ""
    pattern: str = ""
    size: float = 0.0
    place: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """ground: a scene word, a colour, a pattern, or "" for the maker's choice."""

    figures: tuple[Figure, ...]
    ground: str = ""
    ground_colour: str = ""
    seed: int = 0

    def dumps(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, recipe: str) -> "Scene":
        values: dict[str, Any] = json.loads(recipe)
        values["figures"] = tuple(Figure(**f | {"place": tuple(f["place"])}) for f in values["figures"])
        return cls(**values)


def read(prompt: str, seed: int, knows: Callable[[str], bool]) -> tuple[Scene, tuple[str, ...]]:
    """A prompt -> its scene, and the words that cannot be drawn. knows: whether there is a picture of a noun."""
    text = " " + re.sub(r"[^a-z0-9 ,.;-]+", " ", prompt.lower()).strip() + " "
    ground, ground_colour, text = _ground(text)
    figures: list[Figure] = []
    unknown: list[str] = []
    phrases = [p for p in re.split(r"\bnext to\b|\bbeside\b|\band\b|\bwith\b|[,;.]", text) if p.strip()]
    unknown += [phrase.strip() for phrase in phrases[MAX_PHRASES:]]
    for phrase in phrases[:MAX_PHRASES]:
        found, missing = _phrase(phrase, knows)
        figures += found
        unknown += missing
    if not figures and not ground and not unknown:
        unknown = [prompt.strip()]
    if len(figures) == 1 and not ground and figures[0].what == "" and figures[0].pattern:
        # "red horizontal stripes": the pattern is the picture
        ground, ground_colour, figures = figures[0].pattern, figures[0].colour, []
    elif len(figures) == 1 and not ground and figures[0].what == "" and figures[0].colour:
        ground, figures = figures[0].colour, []
    return Scene(figures=tuple(figures), ground=ground, ground_colour=ground_colour, seed=seed), tuple(unknown)


def _ground(text: str) -> tuple[str, str, str]:
    """(ground, its colour, the rest of the text)"""
    for match in reversed(list(GROUND.finditer(text.rstrip()))):
        words = find(match["what"])
        scenes = [w for w in words if w.kind in (Kind.SCENE, Kind.PATTERN)]
        colours = [w.name for w in words if w.kind is Kind.COLOUR]
        if any(w.kind in (Kind.OBJECT, Kind.SHAPE) for w in words) or not (scenes or colours):
            continue
        rest = text[: match.start()] + " " + text.rstrip()[match.end() :]
        if scenes:
            return scenes[0].name, colours[0] if colours else "", rest
        return colours[0], "", rest
    return "", "", text


def _phrase(phrase: str, knows: Callable[[str], bool]) -> tuple[list[Figure], list[str]]:
    words = find(phrase)
    colour = next((w.name for w in words if w.kind is Kind.COLOUR), "")
    pattern = next((w.name for w in words if w.kind is Kind.PATTERN), "")
    nouns = [w.name for w in words if w.kind in (Kind.SHAPE, Kind.OBJECT, Kind.SCENE)]
    spelled = {part for w in words for name in (w.name, *w.aliases) for part in re.split("[ -]", name)}
    left = [t for t in re.findall(r"[a-z-]+|\d+", phrase) if not _said(t, spelled)]
    count = next((COUNTS[t] for t in left if t in COUNTS), 1)
    size = next((SIZES[t] for t in left if t in SIZES), 0.85 if "close-up" in left else 0.0)
    place = next((PLACES[t] for t in left if t in PLACES), (0.0, 0.0))
    rest = [t for t in left if t not in COUNTS | SIZES | PLACES | STYLES and t not in IGNORED]
    # A noun outside the vocabulary may still be in a caption; a finer word ("labrador") beats the coarse one.
    finer = [t for t in rest[:MAX_WORDS] if knows(t)]
    unknown = [t for t in rest if t not in finer]
    if finer:
        nouns = [*finer, *nouns[1:]]
    nouns = nouns or ([""] if (colour or pattern) and not unknown else [])
    figure = Figure(what="", colour=colour, pattern=pattern, size=size, place=place)
    return [replace(figure, what=noun) for noun in nouns for _ in range(count)], unknown


def _said(token: str, spelled: set[str]) -> bool:
    return any(token in (part, part + "s", part + "es") for part in spelled)


def is_vocabulary(word: str, kind: Kind) -> bool:
    return word in BY_NAME and BY_NAME[word].kind is kind
