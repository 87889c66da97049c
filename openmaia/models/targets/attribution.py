"""Attributes the classes of a network to the units of a layer: response times gradient, summed over positions.

One backward pass for a class serves all units of the layer, whatever their number. Shrikumar et al. 2017 (arXiv:1704.02685) call
it gradient * input; for a unit it is the first order of what ablating it takes from the class.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from openmaia.core.errors import UsageError
from openmaia.core.services import DRIVEN, Drives
from openmaia.models.targets.dictionary import Dictionary, spread
from openmaia.models.targets.interventions import UnitSpace
from openmaia.models.targets.meaning import ClassOutput

# Rises (classes x units) that are summed at once, and values of the decoder that are gathered at once: 128 MiB each.
_CELLS, _GATHERED = 2**24, 2**25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A forward pass of some images."""

    values: torch.Tensor
    """The layer's output, shape (images, …), on which `scores` depends for autograd."""
    scores: torch.Tensor
    """Shape (images, classes)."""
    size: tuple[int, int]
    """Height and width of the input."""
    images: int


def class_scores(classes: ClassOutput, heads: Sequence[int], output: torch.Tensor) -> torch.Tensor:
    """Returns the logits of a network's output, less their mean over the classes of the head if these exclude each other.
    Shapes (images, classes)."""
    with torch.enable_grad():
        logits = classes.logits(output)
        if not classes.exclude:
            return logits
        own = logits.split(list(heads or (classes.count,)), dim=1)
        return torch.cat([each - each.mean(dim=1, keepdim=True) for each in own], dim=1)


def attribute(
    run: Callable[[], Iterator[Pass]],
    space: UnitSpace,
    units: int,
    classes: int,
    images: int,
    progress: Callable[[int, int], None],
) -> Drives:
    """Attributes the classes to the units of a space on all images of `run`, which is repeated for each part of the classes.

    Raises:
        UsageError: The network does not compute gradients.
    """
    step, done = max(_CELLS // units, 1), 0
    rises, best = torch.zeros(0, units), torch.zeros(0, units, dtype=torch.int64)
    for first in range(0, classes, step):
        part = range(first, min(first + step, classes))
        total = torch.zeros(len(part), units, dtype=torch.float64)
        for each in run():
            total += _summed(each, space, units, part)
            done += each.images * len(part)
            progress(done, images * classes)
        numbers = torch.tensor(part)[:, None].expand(-1, units)
        rises, at = torch.cat([rises, total / images]).topk(min(DRIVEN, len(rises) + len(part)), dim=0)
        best = torch.cat([best, numbers]).gather(0, at)
    return Drives(classes=best.T.numpy(), rises=rises.T.double().numpy(), images=images)


@contextmanager
def needing_gradients(layer: str) -> Generator[None]:
    """Raises UsageError if an operation of the network has no derivative, or does not run where gradients are computed."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except RuntimeError as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"the network gives no gradients with respect to {layer} ({said})") from error


def _summed(one: Pass, space: UnitSpace, units: int, part: range) -> torch.Tensor:
    """What the units add to the scores of some classes, summed over images: float64, (classes, units), on the CPU."""
    weigh = _weighing(space, one.values.detach(), one.size, units)
    found: list[torch.Tensor] = []
    for number in part:
        with needing_gradients(space.layer):
            (gradient,) = torch.autograd.grad(
                one.scores[:, number].sum(), one.values, retain_graph=True, allow_unused=True
            )
        found.append(torch.zeros(units) if gradient is None else weigh(gradient))
    return torch.stack(found).cpu()


def _weighing(
    space: UnitSpace, values: torch.Tensor, size: tuple[int, int], units: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """What returns, for a gradient of the shape of the layer's output, what each unit adds: float64, (units,)."""
    own, channels = space.own, _flat(space.view(values, size))
    if own is None:
        return lambda gradient: (channels * _flat(space.view(gradient, size))).sum(dim=(0, 2), dtype=torch.float64)
    if isinstance(own, Dictionary):
        return _of_features(own, space, values, size)
    responses, weight = own.all(channels), own.weight.to(values.device)
    turned = weight / weight.square().sum(dim=1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    return lambda gradient: (responses * (turned @ _flat(space.view(gradient, size)))).sum(
        dim=(0, 2), dtype=torch.float64
    )


def _of_features(
    own: Dictionary, space: UnitSpace, values: torch.Tensor, size: tuple[int, int]
) -> Callable[[torch.Tensor], torch.Tensor]:
    view = space.view(values, size).float()
    found = own.all(view)
    place = found.at // (found.count * found.units) * found.count + found.at % found.count
    """The image and position of each value, as the row of (images · positions, channels)."""
    strength = found.values * _rows(spread(view, own.normalisation))[place, 0]
    decoder, step = own.decoder.to(view.device), max(_GATHERED // view.shape[1], 1)

    def weigh(gradient: torch.Tensor) -> torch.Tensor:
        rows = _rows(space.view(gradient, size).float())
        total = torch.zeros(found.units, dtype=torch.float64, device=rows.device)
        for first in range(0, len(place), step):
            part = slice(first, first + step)
            along = (rows[place[part]] * decoder[found.unit_of[part]]).sum(dim=1)
            total.index_add_(0, found.unit_of[part], (along * strength[part]).double())
        return total

    return weigh


def _flat(view: torch.Tensor) -> torch.Tensor:
    """(images, channels, positions)."""
    return view.float().reshape(*view.shape[:2], -1)


def _rows(view: torch.Tensor) -> torch.Tensor:
    """(images · positions, channels)."""
    return _flat(view).mT.reshape(-1, view.shape[1])
