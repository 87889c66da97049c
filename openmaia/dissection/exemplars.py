"""Exemplars of chosen units from one pass over the pictures."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from openmaia.errors import UsageError
from openmaia.images import Picture
from openmaia.services import Exemplar, ExemplarKind, UnitExemplars
from openmaia.units import TargetInfo, Unit

Progress = Callable[[int, int], None]
"""Told (done, all) after every picture."""


class Readable(Protocol):
    """A target that shows whole layers, not only single units."""

    def info(self) -> TargetInfo: ...

    def view(self, picture: Picture) -> Picture: ...

    def respond(self, picture: Picture) -> tuple[Mapping[str, npt.NDArray[np.float32]], Any]: ...


def dissect(
    target: Readable,
    pictures: Iterable[Picture],
    total: int,
    units: Sequence[Unit],
    *,
    k: int,
    quantile: float,
    progress: Progress = lambda done, total: None,
) -> list[UnitExemplars]:
    """Each picture is shown as the network's own preprocessing makes it, and kept like that, so that probing an
    exemplar again gives its activation again. Equal views count once."""
    views: dict[str, Picture] = {}
    maps: dict[Unit, list[npt.NDArray[np.float32]]] = {unit: [] for unit in units}
    for done, picture in enumerate(pictures, start=1):
        view = target.view(picture)
        if view.digest not in views:
            views[view.digest] = view
            responses, _ = target.respond(view)
            for unit in units:
                maps[unit].append(np.array(responses[unit.layer][unit.index], dtype=np.float32))
        progress(done, total)
    if not views:
        raise UsageError("there is no picture to take exemplars from; give a folder with more pictures")
    kept = list(views.values())
    return [_summarise(unit, kept, maps[unit], k, quantile) for unit in units]


def _summarise(
    unit: Unit, pictures: list[Picture], maps: list[npt.NDArray[np.float32]], k: int, quantile: float
) -> UnitExemplars:
    maxima = np.array([float(f"{float(small.max()):.5g}") for small in maps])
    # Ties are broken by the picture itself, never by the order in which it came.
    order = sorted(range(len(pictures)), key=lambda i: (-maxima[i], pictures[i].digest))
    chosen: dict[ExemplarKind, list[int]] = {
        "top": order[:k],
        "bottom": order[::-1][:k],
        "random": sorted(range(len(pictures)), key=lambda i: _lot(pictures[i].digest))[:k],
        "ladder": [order[round(at)] for at in np.linspace(len(order) - 1, 0, min(k, len(order)))],
    }
    exemplars = [
        Exemplar(
            kind=kind,
            rank=rank,
            activation=float(maxima[i]),
            picture=pictures[i],
            map=maps[i] if maps[i].ndim == 2 else None,
        )
        for kind, indices in chosen.items()
        for rank, i in enumerate(indices)
    ]
    positions = np.concatenate([small.ravel() for small in maps])
    return UnitExemplars(
        unit=unit,
        threshold=_threshold(positions, quantile),
        maxima=np.asarray(np.percentile(maxima, np.arange(101)), dtype=np.float64),
        mean=float(maxima.mean()),
        std=float(maxima.std()),
        exemplars=tuple(exemplars),
    )


def _threshold(positions: npt.NDArray[np.float32], quantile: float) -> float:
    """The quantile over all positions. A unit so saturated that its quantile is its maximum would never rise above it;
    its threshold is the highest value below."""
    threshold, top = float(np.quantile(positions, quantile)), float(positions.max())
    below = positions[positions < top]
    return float(below.max()) if threshold >= top and below.size else threshold


def _lot(digest: str) -> str:
    return hashlib.sha256(f"random {digest}".encode()).hexdigest()
