"""One unit investigated by the scripted experimenter, and what baselines get, in whichever process."""

import json
import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from measure.science import setting
from measure.science.baselines import Means, picture_order
from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import datasets, investigations
from openmaia.core.images import EncodedImage, flatten
from openmaia.core.units import Unit
from openmaia.exemplars.compute import list_images
from openmaia.models.targets.networks import classifier
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.runs.records import Record

LARGEST = 320
"""Pixels of the longer side of pictures that a baseline shows to a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    config: str
    overrides: tuple[str, ...]
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """images: that the unit was shown beyond exemplars. seconds: of processor time."""

    unit: Unit
    labels: tuple[str, ...]
    images: int
    seconds: float


def investigated(job: Job) -> Answer:
    began = time.process_time()
    options = investigations.options(setting.config(job.config, job.overrides))
    record = investigate(job.unit, load_task("description"), setting.services(job.config, job.overrides), options)
    spent = time.process_time() - began
    return Answer(unit=job.unit, labels=record.labels, images=images(record), seconds=spent)


def images(record: Record) -> int:
    """The images that the unit was shown beyond its exemplars."""
    return sum(len(call.entries) for turn in record.turns for call in turn.calls if call.name == "call_neuron")


def means(config: str, overrides: tuple[str, ...]) -> Means:
    """With the experimenter's own eyes."""
    return Means(
        services=setting.services(config, overrides),
        see=_eyes(setting.config(config, overrides).backbone.eyes).see,
        pictures=_pictures(json.dumps([config, *overrides])),
    )


@cache
def _eyes(network: str) -> Eyes:
    return Eyes(classifier(network))


@cache
def _pictures(key: str) -> tuple[EncodedImage, ...]:
    """The explore split, each time in the same order, which is that of a hash."""
    config, *overrides = json.loads(key)
    settings = setting.config(config, tuple(overrides))
    found: list[EncodedImage] = []
    for item in list_images(settings, datasets.image_dataset(settings)):
        image = item.load()
        image.thumbnail((LARGEST, LARGEST))
        found.append(EncodedImage.of(np.asarray(flatten(image))))
    return tuple(picture_order(found, settings.seed))
