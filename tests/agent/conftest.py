"""Runs investigations in which recorded replies play the agent."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import exemplars, investigations
from openmaia.core.errors import ServiceError
from openmaia.core.services import Backbone, GeneratedImage, Generation, Generator
from openmaia.core.units import Unit
from openmaia.runs.journal import FolderJournal
from openmaia.runs.records import Record, Turn
from tests.helpers.investigating import UNIT, configured, pictures

__all__ = ["pictures"]

Investigate = Callable[..., Record]


@pytest.fixture
def run(pictures: Path, tmp_path: Path, exemplars_folder: Path) -> Investigate:
    """Runs an investigation in which the agent gives these replies."""

    def go(
        *replies: str,
        overrides: Sequence[str] = (),
        unit: Unit = UNIT,
        journal: FolderJournal | None = None,
        generator: Generator | None = None,
        backbone: Callable[[Backbone], Backbone] = lambda own: own,
        observer: Callable[[Turn], None] = lambda turn: None,
        gate: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Record:
        config = configured(pictures, exemplars_folder, tmp_path, replies, tuple(overrides))
        services = investigations.services(config, exemplars.make(config, [UNIT.layer]))
        services = replace(services, generator=generator or services.generator, backbone=backbone(services.backbone))
        settings = replace(investigations.options(config), **options)
        task = load_task(config.task.name)
        return investigate(unit, task, services, settings, journal=journal, observer=observer, gate=gate)

    return go


def first_requests(run: Investigate, *replies: str, overrides: Sequence[str] = ()) -> list[Generation]:
    """Returns what an investigation first asks of the generator, which then fails."""
    requests: list[Generation] = []

    class Recording:
        def generate(self, wanted: Sequence[Generation]) -> list[GeneratedImage]:
            requests.extend(wanted)
            raise ServiceError("enough")

    with pytest.raises(ServiceError, match="enough"):
        run(*replies, generator=Recording(), overrides=overrides)
    return requests
