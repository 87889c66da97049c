"""Parses a prompt into a scene, which is stored as the recipe of the image."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from openmaia.offline.vocabulary.words import BY_NAME, Word, WordKind, find

_COUNTS = {"two": 2, "pair": 2, "three": 3, "four": 4, "several": 4, "many": 6, "five": 5, "six": 6}
_SIZES = {"tiny": 0.25, "small": 0.35, "large": 0.85, "big": 0.85, "huge": 0.95}
_PLACES = {"left": (-0.25, 0.0), "right": (0.25, 0.0), "top": (0.0, -0.25), "bottom": (0.0, 0.25)}
_STYLES = {"photo": "", "picture": "", "image": "", "close-up": "large", "closeup": "large"}
_IGNORED = frozenset(
    "a an the of with and or in on at to by next beside near some its it is are there showing shows plain solid colored "
    "coloured background surface against over under front close up middle center centre corner side shape shaped pattern "
    "patterned texture scene view that this object objects thing things one single very filled full".split()
)
# Parsing a prompt of an agent must not take long. The rest is reported as not drawn.
_MAX_PHRASES, _MAX_WORDS = 12, 24
_GROUND = re.compile(
    r"\b(?:on|in|against|over|under)\s+(?:an?\s+|the\s+)?(?P<what>[a-z -]+?)(?:\s+background)?(?=$|[.,;])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneFigure:
    """An object or a shape in a collage."""

    what: str
    """A word of the vocabulary, another noun, or "" for any shape."""
    colour: str = ""
    pattern: str = ""
    size: float = 0.0
    """As a share of the side of the image; 0 for the usual size."""
    place: tuple[float, float] = (0.0, 0.0)
    """Shift of the centre (right, down) as shares of the side of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollageScene:
    """What an image shows: figures on a ground."""

    figures: tuple[SceneFigure, ...]
    ground: str = ""
    """A scene word such as grass, a colour, a pattern, or "" for any background."""
    ground_colour: str = ""
    """Of a scene or a pattern; "" for any colour."""
    seed: int = 0

    def dumps(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, recipe: str) -> "CollageScene":
        values: dict[str, Any] = json.loads(recipe)
        values["figures"] = tuple(SceneFigure(**f | {"place": tuple(f["place"])}) for f in values["figures"])
        return cls(**values)


def read(prompt: str, seed: int, knows: Callable[[str], bool]) -> tuple[CollageScene, tuple[str, ...]]:
    """Parses a prompt into a scene. Returns the words and phrases that cannot be drawn, too.

    Args:
        knows: Returns whether there is an image that shows a noun.
    """
    text = " " + re.sub(r"[^a-z0-9 ,.;-]+", " ", prompt.lower()).strip() + " "
    ground, ground_colour, text, unknown = _ground(text)
    figures: list[SceneFigure] = []
    phrases = [p for p in re.split(r"\bnext to\b|\bbeside\b|\band\b|\bwith\b|[,;.]", text) if p.strip()]
    unknown += [phrase.strip() for phrase in phrases[_MAX_PHRASES:]]
    for phrase in phrases[:_MAX_PHRASES]:
        known, missing = _phrase(phrase, knows)
        figures += known
        unknown += missing
    if not figures and not ground and not unknown:
        unknown = [prompt.strip()]
    if len(figures) == 1 and not ground and figures[0].what == "" and figures[0].pattern:
        # "red horizontal stripes": the pattern fills the image
        ground, ground_colour, figures = figures[0].pattern, figures[0].colour, []
    elif len(figures) == 1 and not ground and figures[0].what == "" and figures[0].colour:
        ground, figures = figures[0].colour, []
    return CollageScene(figures=tuple(figures), ground=ground, ground_colour=ground_colour, seed=seed), tuple(unknown)


def is_vocabulary(word: str, kind: WordKind) -> bool:
    """Returns whether a word of this kind can be drawn."""
    return word in BY_NAME and BY_NAME[word].kind is kind


def _ground(text: str) -> tuple[str, str, str, list[str]]:
    # Returns the background, its colour if it is a scene or pattern, the rest of the text, and what cannot be drawn of
    # it.
    for match in reversed(list(_GROUND.finditer(text.rstrip()))):
        words = find(match["what"])
        scenes = [w for w in words if w.kind in (WordKind.SCENE, WordKind.PATTERN)]
        colours = [w for w in words if w.kind is WordKind.COLOUR]
        if any(w.kind in (WordKind.OBJECT, WordKind.SHAPE) for w in words) or not (scenes or colours):
            continue
        rest = text[: match.start()] + " " + text.rstrip()[match.end() :]
        unknown = [w.name for w in (*scenes[1:], *colours[1:])]
        unknown += [t for t in _unspelled(match["what"], words) if t not in _IGNORED]
        if scenes:
            return scenes[0].name, colours[0].name if colours else "", rest, unknown
        return colours[0].name, "", rest, unknown
    return "", "", text, []


def _unspelled(phrase: str, words: Sequence[Word]) -> list[str]:
    spelled = {part for w in words for name in (w.name, *w.aliases) for part in re.split("[ -]", name)}
    return [t for t in re.findall(r"[a-z-]+|\d+", phrase) if not any(t in (p, p + "s", p + "es") for p in spelled)]


def _phrase(phrase: str, knows: Callable[[str], bool]) -> tuple[list[SceneFigure], list[str]]:
    words = find(phrase)
    colours = [w.name for w in words if w.kind is WordKind.COLOUR]
    patterns = [w.name for w in words if w.kind is WordKind.PATTERN]
    colour, pattern = (names[0] if names else "" for names in (colours, patterns))
    nouns = [w.name for w in words if w.kind in (WordKind.SHAPE, WordKind.OBJECT, WordKind.SCENE)]
    left = _unspelled(phrase, words)
    count = next((_COUNTS[t] for t in left if t in _COUNTS), 1)
    size = next((_SIZES[t] for t in left if t in _SIZES), 0.85 if "close-up" in left else 0.0)
    place = next((_PLACES[t] for t in left if t in _PLACES), (0.0, 0.0))
    rest = [t for t in left if t not in _COUNTS | _SIZES | _PLACES | _STYLES and t not in _IGNORED]
    # A caption may contain a noun outside of the vocabulary. Beside an object of the vocabulary it may be an adjective.
    is_open = not any(is_vocabulary(noun, kind) for noun in nouns for kind in (WordKind.OBJECT, WordKind.SHAPE))
    specific = [t for t in rest[:_MAX_WORDS] if is_open and knows(t)]
    unknown = [t for t in rest if t not in specific]
    nouns = [*specific, *nouns] or ([""] if (colour or pattern) and not unknown else [])
    unknown += colours[1:] + patterns[1:]
    if pattern and any(noun and not is_vocabulary(noun, WordKind.SHAPE) for noun in nouns):
        unknown.append(pattern)
    figure = SceneFigure(what="", colour=colour, pattern=pattern, size=size, place=place)
    return [replace(figure, what=noun) for noun in nouns for _ in range(count)], unknown
