"""Makes the exemplars that a run needs and its store lacks."""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from openmaia import build
from openmaia.dissection.exemplars import Progress, dissect
from openmaia.images import Picture, flatten
from openmaia.pictures.library import Item, Library
from openmaia.schema import Config
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.records import dumps
from openmaia.units import TargetInfo, Unit

LARGEST = 640
"""Pixels of a dataset picture's longer side: more than any network here looks at."""


def dataset(config: Config, pictures: Library) -> list[Item]:
    """The pictures that exemplars come from: everything of the explore half."""
    items = [*pictures.photos("explore"), *pictures.cutouts("explore"), *pictures.textures("explore")]
    items.sort(key=lambda item: item.digest)
    return items[: config.pictures.limit or None]


def store_of(config: Config, info: TargetInfo, items: Sequence[Item]) -> ExemplarStore:
    """Where the exemplars of this network, on these pictures, under these settings are kept."""
    facts = {
        "network": info.digest,
        "preprocess": config.target.preprocess,
        "shuffled": config.target.shuffled,
        "pictures": hashlib.sha256("".join(item.digest for item in items).encode()).hexdigest(),
        "k": config.exemplars.k,
        "quantile": config.exemplars.quantile,
    }
    key = hashlib.sha256(dumps(facts).encode()).hexdigest()
    return ExemplarStore.at(config.paths.exemplars, info.name, config.pictures.kind, key)


def make(
    config: Config,
    units: Sequence[Unit],
    say: build.Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> ExemplarStore:
    """Computes what the store lacks."""
    reader = build.target(config)
    items = dataset(config, build.library(config, say))
    store = store_of(config, reader.info(), items)
    layers = {unit.layer: {u.index for u in units if u.layer == unit.layer} for unit in units}
    owed = [
        Unit(target=config.target.name, layer=layer, index=index)
        for layer, indices in layers.items()
        if indices - store.units(layer)
        for index in sorted(indices | store.units(layer))
    ]
    if not owed:
        return store
    found = dissect(
        reader,
        pictures(items),
        len(items),
        owed,
        k=config.exemplars.k,
        quantile=config.exemplars.quantile,
        progress=progress,
    )
    manifest = {"target": config.target.name, "network": reader.info().digest, "preprocess": config.target.preprocess}
    for layer in dict.fromkeys(unit.layer for unit in owed):
        store.write(layer, [u for u in found if u.unit.layer == layer], manifest)
    return store


def pictures(items: Sequence[Item]) -> Iterator[Picture]:
    for item in items:
        image = item.load()
        image.thumbnail((LARGEST, LARGEST))
        yield Picture.of(np.asarray(flatten(image)), [item.digest])
