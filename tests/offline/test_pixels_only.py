"""The scripted experimenter sees pixels only: scrambling everything else that images carry changes nothing."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import datasets, investigations, targets
from openmaia.assembly.exemplars import make
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Message, Reply
from openmaia.core.services import Backbone
from openmaia.datasets.folder import FileSource
from openmaia.datasets.library import DatasetImage
from openmaia.exemplars.compute import list_images
from openmaia.exemplars.pictures import shrink
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import Run
from tests.helpers.dissecting import dissect
from tests.helpers.samples import comparable

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


class Scrambling:
    """Passes every image on with a false recipe and false sources."""

    def __init__(self, backbone: Backbone):
        self._backbone = backbone
        self.images = 0

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return self._backbone.reply(
            [dataclasses.replace(c, messages=list(map(self._false, c.messages))) for c in chats]
        )

    def _false(self, message: Message) -> Message:
        self.images += len(message.images)
        parts = tuple(
            EncodedImage(data=part.data, sources=("elephant",), recipe='{"figures": "elephant"}')
            if isinstance(part, EncodedImage)
            else part
            for part in message.parts
        )
        return dataclasses.replace(message, parts=parts)


def scrambled(items: Sequence[DatasetImage], folder: Path) -> list[DatasetImage]:
    """Copies files under other names, in the same order, with the caption and category of another file."""
    made: list[DatasetImage] = []
    for index, (item, other) in enumerate(zip(items, reversed(items), strict=True)):
        assert isinstance(item.source, FileSource)
        path = folder / f"elephant-{index}{item.source.path.suffix}"
        shutil.copy(item.source.path, path)
        made.append(dataclasses.replace(item, source=FileSource(path), caption=other.caption, category=other.category))
    return made


def shown(item: DatasetImage) -> EncodedImage:
    return EncodedImage.of(shrink(item.load()), [item.digest])


def test_experimenter_ignores_captions_names_and_recipes(alone: Run, small: Callable[..., Config], tmp_path: Path):
    config = small()
    target = targets.target(config)
    (plain,) = (record for record in map(alone.record, alone.done()) if record.unit.layer == "_conv_head")
    items = list_images(config, datasets.image_dataset(config))
    (tmp_path / "scrambled").mkdir()
    other = scrambled(items, tmp_path / "scrambled")
    found = dissect(
        target,
        [shown(item) for item in other],
        [plain.unit],
        k=config.exemplars.k,
        quantile=0.99,
        identity=lambda p: p.sources[0],
    )
    store = ExemplarStore.at(str(tmp_path / "store"), "target", "pictures")
    store.claim({})
    store.write("_conv_head", found)

    services = investigations.services(config, make(config, [plain.unit.layer]))
    options, task = investigations.options(config), load_task("description")
    backbone = Scrambling(services.backbone)
    changed = dataclasses.replace(services, exemplars=store, backbone=backbone)
    assert comparable(investigate(plain.unit, task, changed, options)) == comparable(plain)
    assert backbone.images > 45
    assert plain.labels
