"""The images of one investigation, under the names by which the agent's code knows them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmaia.errors import ToolError
from openmaia.images import Picture, Rendering, rendered
from openmaia.tools.arguments import brief

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """mask: (height, width), where the unit rose above its threshold; None for a picture it has not been shown or a
    layer without space. activation: the unit's answer as the agent sees it (value, percentile, z, fired). hypothesis: which one it was said to test."""

    id: str
    original: Picture
    mask: Mask | None = None
    activation: dict[str, float | bool] | None = None
    hypothesis: str = ""


class Album:
    def __init__(self, rendering: Rendering = Rendering.DARKEN) -> None:
        self.entries: dict[str, Entry] = {}
        self._rendering = rendering

    def view(self, id: object, name: str) -> Picture:
        """`masked` is drawn when somebody looks: most images are only measured."""
        entry = self.get(id)
        if name != "masked" or entry.mask is None:
            return entry.original
        return Picture.of(rendered(entry.original.pixels, entry.mask, self._rendering), entry.original.sources)

    def add(
        self,
        original: Picture,
        mask: Mask | None = None,
        activation: dict[str, float | bool] | None = None,
        hypothesis: str = "",
    ) -> Entry:
        name = f"image-{len(self.entries) + 1}"
        entry = Entry(id=name, original=original, mask=mask, activation=activation, hypothesis=hypothesis)
        self.entries[entry.id] = entry
        return entry

    def restore(self, entries: tuple[Entry, ...]) -> None:
        """Puts back what a replayed call had added."""
        self.entries.update((entry.id, entry) for entry in entries)

    def get(self, id: object) -> Entry:
        entry = self.entries.get(id) if isinstance(id, str) else None
        if entry is None:
            raise ToolError(f"there is no image {brief(id)}; use the images that the tools returned")
        return entry
