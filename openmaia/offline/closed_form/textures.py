"""Detectors of repeated patterns, computed in overlapping windows of a quarter of the image.

As in an analysis of variance, the measure is the share of a window's variance that is explained by its rows, its
columns, its diagonals, or the distances from a centre. For stripes, a grid and rings, one of these groupings explains
the variance, and its profile repeats. None of them explains a checkerboard, which is the product of a row profile and a
column profile.
"""

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from openmaia.offline.closed_form.colours import ConceptDetector
from openmaia.offline.closed_form.view import CELL, GRID_SIDE, STATISTICS_SIDE, DetectorInput, EvidenceMap, everywhere

_WINDOW = STATISTICS_SIDE // 2
# First row or column of the windows, in both directions.
_STARTS = (0, _WINDOW // 2, _WINDOW)

Windows = npt.NDArray[np.float32]
"""Shape (n, _WINDOW, _WINDOW)."""


def stripes(direction: str) -> ConceptDetector:
    """Returns a detector of horizontal, vertical or diagonal stripes (both diagonals)."""

    def detect(image: DetectorInput) -> EvidenceMap:
        if direction == "diagonal":
            return np.maximum(_striped(_sheared(image.grey), 0), _striped(_sheared(image.grey[:, ::-1]), 0)[:, ::-1])
        return _striped(_windows(image.grey), 1 if direction == "vertical" else 2)

    return detect


def _striped(windows: Windows, axis: int) -> EvidenceMap:
    # `axis` is averaged to get the profile across the stripes: 1 for vertical ones, 2 for horizontal ones, 0 for
    # sheared windows.
    profile = windows.mean(axis=axis or 1)
    share = profile.var(axis=1) / (windows.var(axis=(1, 2)) + 1e-6)
    return _spread(_step(share, 0.55, 0.85) * _contrast(windows) * _repeats(profile))


def grid(image: DetectorInput) -> EvidenceMap:
    """Detects a grid of thin lines.

    Row means and column means of a window must each explain a part of its variance, and together most of it.
    """
    windows = _windows(image.grey)
    total = windows.var(axis=(1, 2)) + 1e-6
    rows, columns = windows.mean(axis=2), windows.mean(axis=1)
    shares = np.stack([rows.var(axis=1), columns.var(axis=1)]) / total
    repeated = np.minimum(_repeats(rows), _repeats(columns))
    return _spread(_step(shares.sum(0), 0.6, 0.8) * _step(shares.min(0), 0.15, 0.3) * _contrast(windows) * repeated)


def checkerboard(image: DetectorInput) -> EvidenceMap:
    """Detects a checkerboard: one singular value dominates, and row and column means explain little of the variance."""
    halved = image.grey.reshape(STATISTICS_SIDE // 2, 2, STATISTICS_SIDE // 2, 2).mean(axis=(1, 3))
    windows = _windows(halved, _WINDOW // 2)
    centred = windows - windows.mean(axis=(1, 2), keepdims=True)
    total = (centred**2).sum(axis=(1, 2)) + 1e-6
    additive = (windows.mean(axis=2).var(axis=1) + windows.mean(axis=1).var(axis=1)) / (total / windows[0].size)
    left, singular, right = np.linalg.svd(centred)
    product = singular[:, 0] ** 2 / total
    repeated = np.minimum(_repeats(left[:, :, 0]), _repeats(right[:, 0, :]))
    return _spread(_step(product, 0.6, 0.85) * _step(-additive, -0.35, -0.15) * _contrast(windows) * repeated)


def noise(image: DetectorInput) -> EvidenceMap:
    """Detects noise, which has a low correlation of neighbouring pixels."""
    windows = _windows(image.grey)
    centred = windows - windows.mean(axis=(1, 2), keepdims=True)
    next_to = (centred[:, :, 1:] * centred[:, :, :-1]).mean(axis=(1, 2)) / (centred.var(axis=(1, 2)) + 1e-6)
    return _spread(_step(-next_to, -0.6, -0.35) * np.clip(windows.std(axis=(1, 2)) / 0.08, 0, 1))


def rings(image: DetectorInput) -> EvidenceMap:
    """Detects concentric rings in the whole image.

    Most of the variance must be explained by the distance from a centre, and the mean values at increasing distances
    must rise and fall repeatedly.
    """
    rows, columns = np.mgrid[:STATISTICS_SIDE, :STATISTICS_SIDE]
    top, left = _centre(image.grey)
    radius = np.hypot(rows - top, columns - left).astype(np.int64)
    inside = radius < STATISTICS_SIDE // 2
    values, groups = image.grey[inside], radius[inside]
    sizes = np.bincount(groups)
    profile = np.bincount(groups, values) / np.maximum(sizes, 1)
    between = float((sizes * (profile - values.mean()) ** 2).sum() / values.size)
    share = between / (float(values.var()) + 1e-6)
    contrast = min(float(values.std()) / 0.12, 1.0)
    return everywhere(float(_step(np.float32(share), 0.5, 0.8)) * contrast * float(_repeats(profile[None])[0]))


def _centre(grey: EvidenceMap) -> tuple[float, float]:
    # The point nearest to the lines along all gradients, by least squares weighted by the squared gradients; it is
    # clipped to the middle half of the image.
    down, right = np.gradient(ndimage.gaussian_filter(grey, 1.0))
    across = np.stack([-right.ravel(), down.ravel()])  # perpendicular to the gradient, (row, column)
    rows, columns = np.mgrid[:STATISTICS_SIDE, :STATISTICS_SIDE]
    moment = across @ across.T + 1e-6 * np.eye(2)
    projected = across[0] * rows.ravel() + across[1] * columns.ravel()
    top, left = np.clip(np.linalg.solve(moment, across @ projected), STATISTICS_SIDE // 4, 3 * STATISTICS_SIDE // 4)
    return float(top), float(left)


def dots(image: DetectorInput) -> EvidenceMap:
    """Detects many separate round spots of similar size, darker or brighter than the rest of the image."""
    return everywhere(max(_spots(image.grey, bright) for bright in (False, True)))


def _spots(grey: EvidenceMap, bright: bool) -> float:
    low, high = np.quantile(grey, [0.03, 0.97])
    if high - low < 0.2:
        return 0.0
    on = grey > (low + high) / 2 if bright else grey < (low + high) / 2
    labels, _ = ndimage.label(on)
    whole = [
        (rows, columns, labels[rows, columns] == index)
        for index, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1)
        if rows.start > 0 and columns.start > 0 and rows.stop < STATISTICS_SIDE and columns.stop < STATISTICS_SIDE
    ]
    spots = [box for _, _, box in whole if box.sum() >= 9]
    if len(spots) < 5:
        return 0.0
    round_ = [abs(float(b.mean()) - 0.785) < 0.15 and 0.7 < b.shape[0] / b.shape[1] < 1.4 for b in spots]
    sizes = np.array([b.sum() for b in spots], dtype=np.float64)
    even = float(np.clip(1.5 - 1.5 * sizes.std() / sizes.mean(), 0, 1))
    return float(np.clip((np.mean(round_) - 0.3) / 0.4, 0, 1)) * even


def _windows(grey: EvidenceMap, side: int = _WINDOW) -> Windows:
    starts = [start * side // _WINDOW for start in _STARTS]
    return np.stack([grey[y : y + side, x : x + side] for y in starts for x in starts])


def _sheared(grey: EvidenceMap) -> Windows:
    # Diagonals become columns.
    rows, columns = np.mgrid[:_WINDOW, :_WINDOW]
    return np.stack(
        [
            grey[y + rows, np.clip(x + _WINDOW // 2 + columns - rows + 14, 0, STATISTICS_SIDE - 1)]
            for y in _STARTS
            for x in _STARTS
        ]
    )


def _repeats(profile: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    # 0 for up to two crossings of the middle between lowest and highest value, 1 for five or more.
    middle = (profile.max(axis=1) + profile.min(axis=1)) / 2
    above = profile > middle[:, None]
    crossings = (above[:, 1:] != above[:, :-1]).sum(axis=1)
    return np.clip((crossings - 2) / 3, 0, 1).astype(np.float32)


def _contrast(windows: Windows) -> npt.NDArray[np.float32]:
    return np.clip(windows.std(axis=(1, 2)) / 0.12, 0, 1)


def _step(values: npt.NDArray[np.floating] | np.floating, low: float, high: float) -> npt.NDArray[np.float32]:
    return np.clip((values - low) / (high - low), 0, 1).astype(np.float32)


def _spread(evidence: npt.NDArray[np.float32]) -> EvidenceMap:
    # A cell gets the largest value of the windows that contain it.
    evidence_map = np.zeros((GRID_SIDE, GRID_SIDE), dtype=np.float32)
    side = _WINDOW // CELL
    for number, value in enumerate(evidence):
        y, x = (_STARTS[part] // CELL for part in divmod(number, len(_STARTS)))
        part = evidence_map[y : y + side, x : x + side]
        np.maximum(part, value, out=part)
    return evidence_map
