"""Contexts of a class in drawn scenes: place, time of day and weather, as pairs of prompts that differ in one of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random

from openmaia.agent.tools.seeds import seed
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.offline.scenes.album import WEATHERS
from openmaia.offline.scenes.graph import Figure, Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.layout import INDOORS, PLACES
from openmaia.offline.searcher.labels import ask
from openmaia.offline.searcher.pairs import TIMES, prompt

_OUTDOORS = tuple(place for place in PLACES if place not in INDOORS)


@cache
def contexts(without: tuple[str, ...] = ()) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Returns what each context is, such as `time`, and the others of its kind. Indoors there is neither dusk nor rain.

    Args:
        without: Words that the generator does not know. No context is one of them, or needs one of them for the others.
    """
    tables = {"place": _OUTDOORS, "time": TIMES, "weather": ("clear", *WEATHERS)}
    # A prompt of clear weather names none.
    shown = {what: [name for name in names if name not in without or name == "clear"] for what, names in tables.items()}
    return {
        name: (what, tuple(other for other in names if other != name))
        for what, names in shown.items()
        for name in names
        if len(names) > 1 and name not in without
    }


def draw_class(name: str, stream: Random, without: Collection[str] = ()) -> Scene:
    """Returns a random scene of one object of a kind, out of doors, that shows nothing of `without`."""
    weather = stream.choice(WEATHERS) if stream.random() < 0.3 else "clear"
    return Scene(
        figures=(Figure(id=0, kind=name),),
        place=_choice(_OUTDOORS, without, stream),
        time=_choice(TIMES, without, stream),
        weather="clear" if weather in without else weather,
        style="flat",
    )


def _choice(names: Sequence[str], without: Collection[str], stream: Random) -> str:
    # Any of them if the generator knows none: it says so of the image.
    return stream.choice([each for each in names if each not in without] or list(names))


def pair(name: str, context: str, stream: Random, without: tuple[str, ...] = ()) -> tuple[str, str]:
    """Returns prompts for one scene of a kind with a context, and with another of the same kind of context."""
    what, others = contexts(without)[context]
    scene = draw_class(name, stream, without)
    return prompt(replace(scene, **{what: context})), prompt(replace(scene, **{what: stream.choice(others)}))


def named(text: str, without: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the contexts that a text names in the words of the grammar."""
    scene = ask(text).scene
    yield from (each for each in (scene.time, scene.weather, scene.place) if each in contexts(without))


class SceneContextWriter:
    """Writes prompts that test a claimed context, from the first context that the claim names."""

    name = "rules for scenes (no language model)"

    def __init__(self, without: Sequence[str] = ()):
        """
        Args:
            without: Words that the generator does not know.
        """
        self._without = tuple(without)

    def write(self, name: str, context: str, n: int, run_seed: int, *, absent: bool = False) -> list[tuple[str, str]]:
        """Returns n pairs of prompts, with and without the context; with `absent` of another kind of object.

        Raises:
            UnansweredQuestion: The text names no context, or the class is no kind of object of drawn scenes, or the
                generator does not know their words.
        """
        found = next(named(context, self._without), None)
        if found is None or not is_kind(name, self._without):
            raise UnansweredQuestion(
                "the rules have prompts for kinds of objects in a place, time of day or weather, in words that the generator knows"
            )
        stream = Random(seed(run_seed, "evaluate", f"contexts of {name}, {found}, {absent}", 0))
        others = [kind for kind in kinds() if kind not in (name, *self._without)]
        return [pair(stream.choice(others) if absent else name, found, stream, self._without) for _ in range(n)]


def is_kind(name: str, without: Collection[str] = ()) -> bool:
    """Returns whether a class is a kind of object of drawn scenes by its exact name, which is not in `without`."""
    return name in kinds() and name not in without
