"""Checks whether this machine has the GPUs and the memory that a config requests."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.filesize import decimal

from openmaia.checks.weights import WeightReport
from openmaia.config.schema import Config, pool_roles
from openmaia.core.checks import Check, missing, note, ok
from openmaia.core.components import GpuUse, of_config
from openmaia.distributed.cluster.resources import NodeResources, of_pools, unplaced

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


def gpu_count(config: Config, gpus: int) -> list[Check]:
    """Compares the GPUs that the pools of a config request with the number of this machine's GPUs.

    Returns:
        The result of the comparison. It is an error if a pool requests more than one GPU per replica, but no whole
        number. Otherwise the list is empty if no pool requests a GPU, or if the run uses an existing cluster.
    """
    requests = [request for request in of_pools([config]) if request.gpus]
    if wrong := [f"pools.{r.name}.num_gpus={r.gpus:g}" for r in requests if r.gpus > 1 and r.gpus != int(r.gpus)]:
        return [missing(f"{wrong[0]}: above 1 Ray gives whole GPUs only; give a whole number")]
    if not requests or config.ray.address != "local":
        return []
    listed = ", ".join(f"{request.name} {request.count} x {request.gpus:g}" for request in requests)
    text = f"the pools ask for {sum(r.count * r.gpus for r in requests):g} GPUs ({listed}), and this machine has {gpus}"
    if not gpus:
        return [note(f"{text}; run where there are GPUs, or set pools.*.num_gpus=0 with models that a CPU can run")]
    if unplaced(requests, [NodeResources(gpus=gpus)]):
        return [missing(f"{text}: they do not fit; give smaller pools.*.num_gpus or fewer pools.*.min_replicas")]
    return [ok(text)]


def replica_memory(
    config: Config, reports: Sequence[WeightReport], kv_cache: float, gpus: Sequence[GpuInfo]
) -> list[Check]:
    """Compares the memory that a replica of each pool needs with its share of a GPU, or with the main memory.

    A pool serves one model. Its replicas are the processes that each hold a copy of it.

    Args:
        config: The config of the run.
        reports: The weights that the pools load; pools whose weights are not known are left out.
        kv_cache: Bytes of the KV cache of one conversation; 0 if that is not known.
        gpus: The GPUs of this machine. If `ray.address` is another value than "local", the replicas may run elsewhere, and
            the needed memory is reported without a comparison.
    """
    results: list[Check] = []
    for role in pool_roles(config):
        own = [report for report in reports if report.role == role]
        if own and all(report.loaded for report in own):
            parts = [count for report in own for count in report.loaded.values()]
            cache, is_offloaded = kv_cache if role == "backbone" else 0.0, any(report.is_offloaded for report in own)
            results.append(_replica(config, role, parts, cache, gpus, is_offloaded=is_offloaded))
    return results


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
