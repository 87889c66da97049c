"""Checks whether this machine has the GPUs and the memory that a config requests."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from openmaia.checks.weights import WeightReport
from openmaia.config.schema import Config, pool_names
from openmaia.core.checks import Check, missing, note, ok
from openmaia.core.components import GpuUse, of_config
from openmaia.distributed.cluster.resources import NodeResources, of_pools, shortage, unused_gpus

WORKING = 2 * 2**30
"""Bytes that a process needs in addition to its weights, for CUDA, activations and graphs."""


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A GPU of this machine. `total` and `free` are its memory in bytes."""

    name: str
    total: int
    free: int


def main_memory() -> int:
    """Returns the size of this machine's main memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def room(config: Config, gpus: int) -> Iterator[Check]:
    """Yields whether the pools fit on this machine with its number of GPUs, unless the run uses another cluster.

    Memory is not compared: how much of it Ray offers is not known before it starts.
    """
    if config.ray.address != "local":
        return
    requests = [request for request in of_pools([config]) if request.gpus]
    listed = ", ".join(f"{request.name} {request.count} x {request.gpus:g}" for request in requests)
    text = f"the pools ask for {sum(r.count * r.gpus for r in requests):g} GPUs ({listed}), and this machine has {gpus}"
    cpus = config.ray.num_cpus or os.cpu_count() or 1
    if requests and not gpus:
        yield note(f"{text}; run where there are GPUs, or set pools.*.num_gpus=0 with models that a CPU can run")
    elif reason := shortage([config], [NodeResources(gpus=gpus, cpus=cpus)]):
        yield missing(f"this machine has {gpus} GPUs and {cpus} CPUs, and {reason}")
    elif requests:
        yield ok(text)
    elif unused := unused_gpus([config], [NodeResources(gpus=gpus, cpus=cpus)]):
        yield note(unused)


def replica_memory(
    config: Config, reports: Sequence[WeightReport], kv_cache: float, gpus: Sequence[GpuInfo]
) -> Iterator[Check]:
    """Compares the memory that a replica of each pool needs with its share of a GPU, or with the main memory.

    Args:
        config: The config.
        reports: The weights that the pools load; pools whose weights are not known are left out.
        kv_cache: Bytes of the KV cache of one conversation; 0 if that is not known.
        gpus: The GPUs of this machine. If `ray.address` is another value than "local", the replicas may run elsewhere, and
            the needed memory is reported without a comparison.
    """
    for role in pool_names(config):
        own = [report for report in reports if report.role == role]
        if own and all(report.loaded for report in own):
            parts = [count for report in own for count in report.loaded.values()]
            cache, is_offloaded = kv_cache if role == "backbone" else 0.0, any(report.is_offloaded for report in own)
            yield _replica(config, role, parts, cache, gpus, is_offloaded=is_offloaded)


def _replica(
    config: Config, role: str, parts: list[float], kv_cache: float, gpus: Sequence[GpuInfo], *, is_offloaded: bool
) -> Check:
    share: float = getattr(config.pools, role).num_gpus
    use = of_config(config.backbone).gpu_use(config.backbone) if role == "backbone" else GpuUse()
    cards = use.cards
    weights = max(parts) if is_offloaded else sum(parts)
    wanted = weights + kv_cache + WORKING * cards
    cache = f", KV cache of one conversation {decimal(int(kv_cache))}" if kv_cache else ""
    text = f"pools.{role}: a replica needs about {decimal(int(wanted))} (weights {decimal(int(weights))}{cache})"
    if config.ray.address != "local":
        return note(text)
    if not share:
        text, available = f"{text}, and the main memory is {decimal(main_memory())}", float(main_memory())
    elif gpus:
        smallest = min(gpus, key=lambda gpu: gpu.total)
        available = min(share / cards, 1.0) * smallest.total * cards * use.fraction
        text = f"{text}, and its share of {share:g} x {smallest.name} is {decimal(int(available))}"
    else:
        return note(text)
    if wanted <= available:
        return ok(text)
    return missing(f"{text}; give a larger pools.{role}.num_gpus, or a smaller or quantized model")
