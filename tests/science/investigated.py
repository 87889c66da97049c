"""One unit investigated by the scripted experimenter, in whichever process."""

import time
from dataclasses import dataclass

from openmaia import build
from openmaia.agent import investigate
from openmaia.store.records import Record
from openmaia.tasks.task import load as load_task
from openmaia.units import Unit
from tests.science import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    config: str
    overrides: tuple[str, ...]
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """images: that the unit was shown beyond exemplars."""

    unit: Unit
    description: str
    labels: tuple[str, ...]
    images: int
    seconds: float
    record: Record | None = None


def investigated(job: Job) -> Answer:
    began = time.process_time()
    options = build.options(setting.config(job.config, job.overrides))
    record = investigate(job.unit, load_task("description"), setting.services(job.config, job.overrides), options)
    return Answer(
        unit=job.unit,
        description=record.description,
        labels=record.labels,
        images=shown(record),
        seconds=time.process_time() - began,
    )


def shown(record: Record) -> int:
    """Images on which the unit was read."""
    return sum(len(call.entries) for turn in record.turns for call in turn.calls if call.name == "call_neuron")
