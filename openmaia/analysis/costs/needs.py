"""What a sweep needs beside time and money: memory of its replicas, downloads, and disk."""

from collections.abc import Mapping
from dataclasses import dataclass

from openmaia.analysis.costs.beside import count_bank_images, count_shared_images, count_tested_images
from openmaia.analysis.costs.rates import image_kb, loaded
from openmaia.analysis.costs.workload import Workload
from openmaia.config.machine import DrawingPoolConfig
from openmaia.config.schema import Config, pool_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a sweep needs of cards and disks. None stands for what was not measured."""

    memory: Mapping[str, float | None]
    """GiB on the card of a replica, by service; for a backbone without its KV cache."""
    download: Mapping[str, float | None]
    """GB of the files of weights, by service."""
    disk: float
    """GB of the run directory, without the report where it is not included in what was measured."""
    disk_source: str
    """On what that is based, in words."""
    exemplars: float | None
    """GB of the exemplars of all units of the layers."""
    bank: float | None
    """GB of the images of the bank, which all runs share; None for photographs, which have their own sizes."""
    spilled: float
    """GB of cached images on this machine, at most."""
    cached: float
    """GiB of main memory for cached images, at most."""
    code: float
    """GiB of main memory of the processes of the agents' code, at most."""


def find_needs(config: Config, work: Workload, units: int) -> Needs:
    """Returns what `units` investigations and their tests need."""
    measured = work.cores
    kilobytes, source = image_kb(config)
    if measured:
        disk, source, exemplars = units * measured.disk / 1e3, measured.source, measured.exemplars / 1e3
    else:
        drawn = sum(work.asked[role].requests for role in ("generator", "editor") if role in work.asked)
        # A shared image is in the record of its investigation, too.
        each = drawn + 2 * count_tested_images(config)[-1] + count_shared_images(config, work)
        disk, exemplars = units * each * kilobytes / 1e6, None
        source = f"lossless images of {kilobytes:.3g} KB: {source}; the report is not included"
    pools = [getattr(config.pools, name) for name in pool_names(config)]
    drawing = [pool for pool in pools if isinstance(pool, DrawingPoolConfig)]
    return Needs(
        memory=loaded(config, "memory"),
        download=loaded(config, "download"),
        disk=disk,
        disk_source=source,
        exemplars=exemplars,
        bank=None if config.bank.images and config.bank.folder else count_bank_images(config) * kilobytes / 1e6,
        spilled=sum(pool.spill_mb for pool in drawing if pool.cache_mb) * 2**20 / 1e9,
        cached=sum(pool.cache_mb for pool in drawing) / 2**10,
        code=config.ray.investigations * config.sandbox.memory_mb / 2**10,
    )
