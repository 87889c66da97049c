"""The scripted experimenter sees pixels only: scrambling everything else that pictures carry changes nothing."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from openmaia import build, exemplars
from openmaia.agent import investigate
from openmaia.images import Picture, flatten
from openmaia.messages import Chat, Message, Reply
from openmaia.pictures.library import Item
from openmaia.pictures.places import File
from openmaia.schema import Config
from openmaia.services import Backbone
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.records import comparable
from openmaia.tasks.task import load as load_task
from openmaia.units import select
from tests.dissecting import dissect


class Scrambling:
    """Hands every picture on with a false recipe and false sources."""

    def __init__(self, backbone: Backbone):
        self._backbone = backbone
        self.pictures = 0

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._backbone.reply(
            [dataclasses.replace(c, messages=list(map(self._false, c.messages))) for c in chats]
        )

    def _false(self, message: Message) -> Message:
        self.pictures += len(message.pictures)
        parts = tuple(
            Picture(data=part.data, sources=("elephant",), recipe='{"figures": "elephant"}')
            if isinstance(part, Picture)
            else part
            for part in message.parts
        )
        return dataclasses.replace(message, parts=parts)


def scrambled(items: Sequence[Item], folder: Path) -> list[Item]:
    """The same files in the same order under other names, with the caption and category of another one."""
    made: list[Item] = []
    for index, (item, other) in enumerate(zip(items, reversed(items), strict=True)):
        assert isinstance(item.source, File)
        path = folder / f"elephant-{index}{item.source.path.suffix}"
        shutil.copy(item.source.path, path)
        made.append(dataclasses.replace(item, source=File(path), caption=other.caption, category=other.category))
    return made


def shown(item: Item) -> Picture:
    image = item.load()
    image.thumbnail((exemplars.LARGEST, exemplars.LARGEST))
    return Picture.of(np.asarray(flatten(image)), [item.digest])


def test_scrambled_captions_names_and_recipes_leave_the_record_unchanged(small: Callable[..., Config], tmp_path: Path):
    config = small("units=_conv_head=66")
    target = build.target(config)
    units = select(config.units, target.info()).units
    items = exemplars.dataset(config, build.library(config))
    (tmp_path / "scrambled").mkdir()
    other = scrambled(items, tmp_path / "scrambled")
    found = dissect(
        target,
        [shown(item) for item in other],
        units,
        k=config.exemplars.k,
        quantile=0.99,
        identity=lambda p: p.sources[0],
    )
    store = ExemplarStore.at(str(tmp_path / "store"), "target", "pictures")
    store.claim({})
    store.write("_conv_head", found)

    services = build.services(config, exemplars.make(config, [unit.layer for unit in units]))
    options, task = build.options(config), load_task("description")
    plain = investigate(units[0], task, services, options)
    backbone = Scrambling(services.backbone)
    changed = dataclasses.replace(services, exemplars=store, backbone=backbone)
    assert comparable(investigate(units[0], task, changed, options)) == comparable(plain)
    assert backbone.pictures > 45
    assert plain.labels
