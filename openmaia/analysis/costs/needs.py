"""What a sweep needs beside time and money: memory of its replicas, downloads, and disk."""

from collections.abc import Mapping
from dataclasses import dataclass

from openmaia.analysis.costs.estimate import count_tested_images
from openmaia.analysis.costs.rates import core_rates, image_kb, loaded
from openmaia.analysis.costs.workload import Workload
from openmaia.config.schema import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a sweep needs of cards and disks. None stands for what was not measured."""

    memory: Mapping[str, float | None]
    """GiB on the card of a replica, by service; for a backbone without its KV cache."""
    download: Mapping[str, float | None]
    """GB of the files of weights, by service."""
    disk: float
    """GB of the run directory."""
    disk_source: str
    """On what that is based, in words."""
    exemplars: float | None
    """GB of the exemplars of all units of the layers."""


def find_needs(config: Config, work: Workload, units: int) -> Needs:
    """Returns what `units` investigations and their tests need."""
    measured = core_rates(config)
    if measured:
        disk, source, exemplars = units * measured.disk / 1e3, measured.source, measured.exemplars / 1e3
    else:
        drawn = sum(work.asked[role].requests for role in ("generator", "editor") if role in work.asked)
        kilobytes, source = image_kb(config)
        disk = units * (drawn + 2 * count_tested_images(config)[-1]) * kilobytes / 1e6
        source, exemplars = f"lossless images of {kilobytes:.3g} KB: {source}; the report is not included", None
    memory, download = loaded(config, "memory"), loaded(config, "download")
    return Needs(memory=memory, download=download, disk=disk, disk_source=source, exemplars=exemplars)
