"""Exemplars of a few pictures, through the passes that a store is made by."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce

from openmaia.core.images import EncodedImage
from openmaia.core.services import Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars import passes
from openmaia.exemplars.passes import Chosen, FirstPass, Order, Readable
from openmaia.exemplars.store import KINDS
from openmaia.exemplars.summary import Summaries, add
from tests.helpers.looking import loaded


def dissect(
    target: Readable,
    given: Sequence[EncodedImage],
    units: Sequence[Unit],
    *,
    k: int,
    quantile: float,
    identity: Callable[[EncodedImage], str] = lambda image: image.digest,
) -> list[UnitExemplars]:
    order, pictures = ordered(given, identity)
    layers = list(dict.fromkeys(unit.layer for unit in units))
    summaries = first(target, order, pictures, layers, k, [range(len(pictures))])
    chosen = {layer: passes.choose(summary, order) for layer, summary in summaries.items()}
    exemplars = kept(target, pictures, chosen)
    rows = {
        layer: passes.describe_units(target.info(), layer, summary, quantile) for layer, summary in summaries.items()
    }
    return [
        dataclasses.replace(rows[unit.layer][unit.index], unit=unit, exemplars=tuple(exemplars[unit.layer, unit.index]))
        for unit in units
    ]


def ordered(
    given: Sequence[EncodedImage], identity: Callable[[EncodedImage], str] = lambda image: image.digest
) -> tuple[Order, list[EncodedImage]]:
    unique = {identity(image): image for image in given}
    digests = sorted(unique)
    return Order(digests), [unique[digest] for digest in digests]


def first(
    target: Readable,
    order: Order,
    pictures: Sequence[EncodedImage],
    layers: Sequence[str],
    k: int,
    shares: Sequence[Sequence[int]],
) -> Summaries:
    """The first pass by as many workers as there are shares, added up in their order."""
    scales = passes.measure_scales(
        target, layers, (loaded(target, n, pictures[n]) for n in order.sample(passes.SCALED_ON))
    )
    found: list[Summaries] = []
    for share in shares:
        worker = FirstPass(target, order, scales, k)
        worker.take(loaded(target, number, pictures[number]) for number in share)
        found.append(worker.summaries())
    return reduce(add, found)


def kept(
    target: Readable, pictures: Sequence[EncodedImage], chosen: dict[str, Chosen]
) -> dict[tuple[str, int], list[Exemplar]]:
    places = passes.list_places(chosen)
    found: dict[tuple[str, int], list[Exemplar]] = {}
    layers = list(chosen)
    images = (loaded(target, n, pictures[n]) for n in sorted(set(places["number"].tolist())))
    for each in passes.second_pass(target, images, layers, places):
        for (_, layer, unit, kind, rank, activation), small in zip(each.places.tolist(), each.maps, strict=True):
            exemplar = Exemplar(
                kind=KINDS[kind], rank=rank, activation=activation, image=each.image, box=each.box, map=small
            )
            found.setdefault((layers[layer], unit), []).append(exemplar)
    for exemplars in found.values():
        exemplars.sort(key=lambda e: (KINDS.index(e.kind), e.rank))
    return found
