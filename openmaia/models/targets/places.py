"""Checks where in the image the positions of a layer are, by changing parts of the image.

Two images of noise are blended by ramps: the one is replaced by the other the more the higher, then the more the lower,
and likewise towards the left and the right. A position near the upper edge changes more with the first blend than with
the second. The share of the first in its changes says how high in the image it is, whatever the network does with all
positions alike, such as global attention. These heights must follow the rows of the map. (The share in the change by a
complete replacement is far less reliable: behind normalisations and rectifiers, twice the blend is not twice the
change.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from openmaia.core.images import Pixels
from openmaia.models.targets.maps import (
    MAX_PREFIX,
    AxisOrder,
    OutputLayout,
    ShapeEvidence,
    grid,
    grows,
    layouts_by_shape,
    units_first,
)

# The smallest correlation of heights and rows, and likewise of columns, of a map that follows the image; and that where
# the standard deviation of the heights is at least SPREAD, so that they are hardly noise. Correct maps have 0.95 to 1,
# and 0.7 if a global operation determines most of their changes. Other orders of the positions have at most 0.67: all
# even rows before all odd ones, of 8 rows. Two rows of windows side by side have 0.5.
FOLLOWS, FOLLOWS_CLEARLY, SPREAD = 0.6, 0.85, 0.12

# Pairs of noise images. Layers that follow the image with the first pair are not tried again.
ROUNDS = 4

# Smallest standard deviation of the heights of what certainly are positions. Evenly spread ones have 0.29.
CLEAR_SPREAD = 0.1

# Smallest standard deviation of the heights by which a map is disproved whose rows grow with the height of the input
# and whose columns grow with the width. Below, all positions depend on the whole image, as at the end of a deep network
# with random weights. Tokens that do so have no places, because nothing else says in which order they are.
NO_SPREAD = 0.05

# By how much a correlation must exceed that of the usual place of the class token to count for another place.
CLEARLY = 0.02

# Positions that must change to tell whether a layer follows the image; half of all in small maps.
ENOUGH = 16

Maps = Mapping[str, torch.Tensor]
"""Outputs for one image each, without the axis of the images, by layer."""


# Absolute changes of an output with the blends towards top, bottom, left and right, summed over rounds.
_Changes = list[torch.Tensor]


def blend(tensor: Callable[[Pixels], torch.Tensor], size: tuple[int, int], number: int) -> torch.Tensor:
    """Returns an input of noise and its four blends with another, shape (5, channels, height, width).

    Args:
        tensor: Converts an image to an input, of shape (channels, height, width).
        size: Height and width of the image.
        number: Seed of the noise.
    """
    first, second = (tensor(noise(size, 2 * number + n)) for n in range(2))
    height, width = first.shape[1:]
    down, right = ((torch.arange(n) + 0.5) / n for n in (height, width))
    ramps = (1 - down[:, None], down[:, None], 1 - right[None], right[None])
    return torch.stack([first, *(first + ramp * (second - first) for ramp in ramps)])


def correct_layouts(
    evidence: Mapping[str, ShapeEvidence],
    inferred: Mapping[str, OutputLayout | None],
    run: Callable[[torch.Tensor], Maps],
    inputs: Callable[[int], torch.Tensor],
    known: Sequence[Maps],
) -> dict[str, OutputLayout | None]:
    """Returns the layouts of layers, corrected by where their outputs change as the image does.

    A layout whose positions do not follow the image becomes one that is not `placed`. Where only the shape of an output
    spoke for its layout, or said nothing, another order of its axes is taken if its positions follow.

    Args:
        inferred: None where the shapes do not tell.
        run: Runs the network on one input, of shape (1, channels, height, width).
        inputs: Returns what `blend` does for the number of a round.
        known: The outputs for the first of these inputs in round 0, as far as they are known already.
    """
    found = dict(inferred)
    doubtful = {layer for layer, layout in inferred.items() if layout is None or layout.kind is not AxisOrder.VECTOR}
    changes: dict[str, _Changes] = {}
    for number in range(ROUNDS):
        if not doubtful:
            break
        images = inputs(number)
        done = known if number == 0 else ()
        first, *blends = [*done, *(run(each[None]) for each in images[len(done) :])]
        for layer in sorted(doubtful):
            new = [torch.nan_to_num((each[layer] - first[layer]).abs(), 0.0, 0.0, 0.0) for each in blends]
            old = changes.get(layer)
            changes[layer] = new if old is None else [one + other for one, other in zip(old, new, strict=True)]
            found[layer], is_certain = _best(evidence[layer], inferred[layer], changes[layer])
            if is_certain:
                doubtful.discard(layer)
    return found


def noise(size: tuple[int, int], seed: int) -> Pixels:
    """Returns random colours in blocks of three sizes, as networks respond to different frequencies."""
    random = np.random.default_rng(seed)
    total = np.zeros((*size, 3))
    for block in (1, 4, 16):
        small = random.uniform(-1, 1, (-(-size[0] // block), -(-size[1] // block), 3))
        total += small.repeat(block, axis=0).repeat(block, axis=1)[: size[0], : size[1]]
    return np.clip(128 + 70 * total, 0, 255).astype(np.uint8)


def _best(
    evidence: ShapeEvidence, inferred: OutputLayout | None, changes: _Changes
) -> tuple[OutputLayout | None, bool]:
    """The layout whose positions follow the image best, and whether they do."""
    others = [] if grows(evidence) else layouts_by_shape(evidence)
    tried = [] if inferred is None else [inferred]
    tried += [layout for layout in others if layout not in tried]
    scored = [each for layout in tried for each in _placements(evidence, layout, changes)]
    known = [(score, layout) for score, layout in scored if score is not None]
    # The output hardly changes.
    if not known:
        return inferred, False
    usual, best = known[0], max(known, key=lambda each: each[0])
    enough = FOLLOWS_CLEARLY if _spread(units_first(usual[1], changes)) >= SPREAD else FOLLOWS
    if usual[0] >= enough and usual[0] > best[0] - CLEARLY:
        return usual[1], True
    if best[0] >= enough:
        return best[1], True
    if inferred is None:
        return None, False
    is_grid = grows(evidence) and inferred.kind in (AxisOrder.MAP, AxisOrder.MAP_LAST)
    if is_grid and _spread(units_first(inferred, changes)) < NO_SPREAD:
        return inferred, True
    # Positions differ in where they are, and units do not. This tells which axis is which where only the shape spoke.
    spreads = [(_spread(units_first(layout, changes)), layout) for layout in tried]
    largest = max(spreads, key=lambda each: each[0])
    is_other = largest[0] > max(CLEAR_SPREAD, 3 * spreads[0][0])
    return replace(largest[1] if is_other else inferred, placed=False), False


def _placements(
    evidence: ShapeEvidence, layout: OutputLayout, parts: Sequence[torch.Tensor]
) -> list[tuple[float | None, OutputLayout]]:
    """How well the positions follow the image, for each place that the tokens of no patch may have."""
    ordered = units_first(layout, parts)
    if layout.kind in (AxisOrder.MAP, AxisOrder.MAP_LAST):
        return [(_following(ordered), layout)]
    extra, height, width = grid(ordered[0].shape[1], layout.prefix, evidence.size, evidence.layer)
    found: list[tuple[float | None, OutputLayout]] = []
    for start in [extra, *range(extra)] if extra <= MAX_PREFIX else [extra]:
        maps = [part[:, start : start + height * width].reshape(-1, height, width) for part in ordered]
        placed = layout if start == extra else replace(layout, prefix=start, suffix=extra - start)
        found.append((_following(maps), placed))
    return found


def _following(parts: Sequence[torch.Tensor]) -> float | None:
    """The smaller correlation with the image, by rows and by columns. None: too few positions change."""
    up, down, left, right = _averages(parts)
    changing = (up + down > 0) & (left + right > 0)
    if int(changing.sum()) < min(ENOUGH, up.numel() / 2):
        return None
    rows, columns = torch.meshgrid(*(torch.arange(n).double() for n in up.shape), indexing="ij")
    along = [(down / (up + down), rows)] if up.shape[0] > 1 else []
    across = [(right / (left + right), columns)] if up.shape[1] > 1 else []
    return min((_correlation(share[changing], place[changing]) for share, place in along + across), default=1.0)


def _spread(parts: Sequence[torch.Tensor]) -> float:
    up, down, _, _ = _averages([part.flatten(1) for part in parts])
    return float((up / (up + down))[up + down > 0].std())


def _averages(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    # Each unit counts the same: few units of transformers have values 100 times as large.
    scale = torch.stack([part.flatten(1).mean(1) for part in parts]).mean(0)
    shape = (-1, *[1] * (parts[0].ndim - 1))
    return [(part[scale > 0] / scale[scale > 0].reshape(shape)).mean(0).double() for part in parts]


def _correlation(shares: torch.Tensor, places: torch.Tensor) -> float:
    shares, places = shares - shares.mean(), places - places.mean()
    product = float(shares.norm() * places.norm())
    return float(shares @ places) / product if product > 0 else 0.0
