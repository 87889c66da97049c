"""What the network sees in an image, and in the part of it where a unit responds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from cachetools import LRUCache
from PIL import Image
from torch import nn
from torch.nn import functional

from openmaia.core.images import Pixels, digest
from openmaia.offline.experimenter.eyes import lit_part
from openmaia.offline.networks.detector import LOOKS
from openmaia.offline.networks.packaged import load_network
from openmaia.offline.scenes.layout import Box
from openmaia.offline.viewer.seen import Seen, SeenFigure, SeenPart

_SIDE = 128
_WEIGHTS = Path(__file__).parent / "weights.safetensors"
# A figure is named from this probability on. Tuned on scenes that are not measured.
_LEAST = 0.37
_MOST_FIGURES = 12
# Two figures whose boxes share more than this are one.
_SAME = 0.5
# A figure has the colour of others of its kind if this is at least so likely by its own looks.
_POSSIBLE = 0.15
# A figure belongs to the part where a unit responds if so much of the figure lies in it, or so much of the part in the figure.
_COVERED, _FILLED = 0.4, 0.5
_MANY_COLOURS = ("colour", "ground colour")

Array = npt.NDArray[np.float32]


class SceneEyes:
    """Sees drawn scenes in images of any size, without their scene graphs."""

    def __init__(self, weights: Path = _WEIGHTS):
        self._network, self._answers = load_network(weights)
        self._seen: LRUCache[str, Seen] = LRUCache(4096)

    def see(self, pixels: Pixels) -> Seen:
        """Returns what an image shows, cached by the digest of the pixels."""
        key = digest(pixels)
        if key not in self._seen:
            self._seen[key] = self._look(pixels)
        return self._seen[key]

    def see_part(self, pixels: Pixels, masked: Pixels) -> SeenPart:
        """Returns what the part of an image shows that is not darkened in `masked`, a copy of the same size."""
        lit = lit_part(pixels, masked)
        seen = self.see(pixels)
        figures = tuple(each for each in seen.figures if _is_in(each.box, lit))
        rows = np.flatnonzero(lit.any(axis=1))
        middle = float((rows[0] + rows[-1] + 1) / 2 / len(lit)) if len(rows) else 0.5
        return SeenPart(whole=seen, figures=figures, share=float(lit.mean()), middle=middle)

    def _look(self, pixels: Pixels) -> Seen:
        outputs = _outputs(self._network, pixels)
        probabilities = {name: _probabilities(name, logits) for name, logits in outputs.items() if name != "boxes"}
        sizes = outputs["boxes"].exp().numpy()
        named = self._named
        setting = {name: named(name, each) for name, each in probabilities.items() if name not in LOOKS}
        figures = [
            SeenFigure(
                kind=self._answers["kind"][kind],
                confidence=float(probabilities["kind"][kind, row, column]),
                colours=named("colour", probabilities["colour"][:, row, column]),
                patterns=named("pattern", probabilities["pattern"][:, row, column]),
                box=_box(row, column, sizes[:, row, column], sizes.shape[1:]),
                area=float(sizes[2, row, column]),
            )
            for kind, row, column in _peaks(outputs["kind"])
        ]
        kinds = named("kind", probabilities["kind"].max(axis=(1, 2)))
        return Seen(figures=_sorted(figures), kinds=kinds, setting=setting)

    def _named(self, question: str, values: Array) -> Mapping[str, float]:
        return {name: float(each) for name, each in zip(self._answers[question], values, strict=True)}


@torch.inference_mode()
def _outputs(network: nn.Module, pixels: Pixels) -> Mapping[str, torch.Tensor]:
    image = Image.fromarray(pixels)
    if image.size != (_SIDE, _SIDE):
        image = image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    # The mirror image is looked at, too: what both show is more often right.
    both = torch.cat([values, values.flip(3)])
    outputs: Mapping[str, torch.Tensor] = network((both - 0.5) / 0.25)
    return {name: (each[0] + (each[1].flip(2) if each.ndim == 4 else each[1])) / 2 for name, each in outputs.items()}


def _probabilities(question: str, logits: torch.Tensor) -> Array:
    exclude = question != "kind" and question not in _MANY_COLOURS
    return (logits.softmax(dim=0) if exclude else logits.sigmoid()).numpy()


def _peaks(logits: torch.Tensor) -> Sequence[tuple[int, int, int]]:
    # Kind, row and column of the cells that are more likely the middle of a figure than those around them.
    heat = logits.sigmoid()
    highest = functional.max_pool2d(heat[None], 3, 1, 1)[0]
    found = torch.nonzero((heat == highest) & (heat >= _LEAST))
    best = heat[tuple(found.T)].argsort(descending=True, stable=True)[:_MOST_FIGURES]
    return [(int(kind), int(row), int(column)) for kind, row, column in found[best].tolist()]


def _sorted(figures: Sequence[SeenFigure]) -> tuple[SeenFigure, ...]:
    # The largest first. Of two that lie in the same box, the network sees one thing that could be either: the less likely one goes.
    kept: list[SeenFigure] = []
    for each in sorted(figures, key=lambda each: -each.confidence):
        if not any(_shared(each.box, other.box) > _SAME for other in kept):
            kept.append(each)
    return tuple(sorted(map(partial(_agreed, kept), kept), key=lambda each: -each.area))


def _agreed(figures: Sequence[SeenFigure], figure: SeenFigure) -> SeenFigure:
    # Figures of one kind mostly look alike: what is unlikely for none of them is taken from all of them.
    alike = [each for each in figures if each.kind == figure.kind]
    colours, patterns = (_mean([getattr(each, what) for each in alike]) for what in ("colours", "patterns"))
    likely = figure.colours[max(colours, key=lambda each: colours[each])] >= _POSSIBLE
    return replace(figure, colours=colours, patterns=patterns) if likely else figure


def _mean(probabilities: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    return {name: sum(each[name] for each in probabilities) / len(probabilities) for name in probabilities[0]}


def _shared(one: Box, other: Box) -> float:
    # Intersection over union.
    wide, tall = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return wide * tall / (sum(areas) - wide * tall)


def _box(row: int, column: int, size: Array, cells: tuple[int, ...]) -> Box:
    x, y = (column + 0.5) / cells[1], (row + 0.5) / cells[0]
    width, height = float(size[0]), float(size[1])
    return (max(x - width / 2, 0.0), max(y - height / 2, 0.0), min(x + width / 2, 1.0), min(y + height / 2, 1.0))


def _is_in(box: Box, lit: npt.NDArray[np.bool_]) -> bool:
    height, width = lit.shape
    left, top, right, bottom = (
        round(each * side) for each, side in zip(box, (width, height, width, height), strict=True)
    )
    inside = lit[top:bottom, left:right]
    return inside.size > 0 and bool(inside.mean() >= _COVERED or inside.sum() >= _FILLED * max(lit.sum(), 1))
