"""The terms that units respond to."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.kinds import kinds
from openmaia.offline.scenes.truth import locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A phrase of the grammar, such as "red boat"."""

    text: str
    sort: str
    words: tuple[str, ...]
    """Kinds, groups, colours and the like that it is made of."""

    def locate(self, scene: Scene) -> Set[int]:
        """See `truth.locate`."""
        return locate(scene, self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wordless:
    """A property of the figures for which the grammar has no words, and which no prompt makes more frequent.

    The largest figure is in every second of `bands` equal bands of its position (`x`, `y`) or of its height. Or (`number`) the
    number of figures is odd.
    """

    quantity: Literal["x", "y", "height", "number"]
    bands: int = 0
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        if self.quantity == "number":
            return "an odd number of objects"
        return f"{self.quantity} of the largest object in an even one of {self.bands} bands"

    @property
    def sort(self) -> str:
        return self.quantity

    def locate(self, scene: Scene) -> Set[int]:
        """Returns the ids of the figures that have the property. Empty if none has."""
        figures = scene.figures
        if self.quantity == "number":
            return {each.id for each in figures} if len(figures) % 2 else set()
        placed = [(each.spot, each) for each in figures if each.spot]
        if not placed:
            return set()
        spot, largest = max(placed, key=lambda pair: (kinds()[pair[1].kind].width * pair[0].height ** 2, -pair[1].id))
        return {largest.id} if int(getattr(spot, self.quantity) * self.bands) % 2 == 0 else set()


Term = Phrase | Wordless
