"""Contexts of a class in drawn scenes: place, time of day and weather, as pairs of prompts that differ in one of them."""

from collections.abc import Iterator, Mapping
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
def contexts() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Returns what each context is, such as `time`, and the others of its kind. Indoors there is neither dusk nor rain."""
    tables = {"place": _OUTDOORS, "time": TIMES, "weather": ("clear", *WEATHERS)}
    return {
        name: (what, tuple(other for other in names if other != name))
        for what, names in tables.items()
        for name in names
    }


def draw_class(name: str, stream: Random) -> Scene:
    """Returns a random scene of one object of a kind, out of doors."""
    weather = stream.choice(WEATHERS) if stream.random() < 0.3 else "clear"
    figures = (Figure(id=0, kind=name),)
    return Scene(
        figures=figures, place=stream.choice(_OUTDOORS), time=stream.choice(TIMES), weather=weather, style="flat"
    )


def pair(name: str, context: str, stream: Random) -> tuple[str, str]:
    """Returns prompts for one scene of a kind with a context, and with another of the same kind of context."""
    what, others = contexts()[context]
    scene = draw_class(name, stream)
    return prompt(replace(scene, **{what: context})), prompt(replace(scene, **{what: stream.choice(others)}))


def named(text: str) -> Iterator[str]:
    """Yields the contexts that a text names in the words of the grammar."""
    scene = ask(text).scene
    yield from (each for each in (scene.time, scene.weather, scene.place) if each in contexts())


class SceneContextWriter:
    """Writes prompts that test a claimed context, from the first context that the claim names."""

    name = "rules for scenes (no language model)"

    def write(self, name: str, context: str, n: int, run_seed: int, *, absent: bool = False) -> list[tuple[str, str]]:
        """Returns n pairs of prompts, with and without the context; with `absent` of another kind of object.

        Raises:
            UnansweredQuestion: The text names no context, or the class is no kind of object of drawn scenes.
        """
        found = next(named(context), None)
        if found is None or not is_kind(name):
            raise UnansweredQuestion("the rules have prompts for kinds of objects in a place, time of day or weather")
        stream = Random(seed(run_seed, "evaluate", f"contexts of {name}, {found}, {absent}", 0))
        others = [kind for kind in kinds() if kind != name]
        return [pair(stream.choice(others) if absent else name, found, stream) for _ in range(n)]


def is_kind(name: str) -> bool:
    """Returns whether a class is a kind of object of drawn scenes by its exact name."""
    return name in kinds()
