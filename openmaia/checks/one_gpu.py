"""Chooses what the models of a run take of the only GPU of a machine, if the config says nothing about it."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from omegaconf import OmegaConf
from rich.filesize import decimal

from openmaia.config.loading import given_keys
from openmaia.config.machine import POOLS
from openmaia.config.named import shipped_configs
from openmaia.config.schema import Config, pools_by_role
from openmaia.config.sections import site
from openmaia.core.components import TargetComponent, of_config
from openmaia.distributed.cluster.cards import memories
from openmaia.distributed.cluster.resources import of_pools

_MACHINE = re.compile(r"one-(\d+)gb")
"""The name of a config for a machine with one GPU of so many GB."""


def share_gpu(sources: Sequence[str], configs: Sequence[Config], torch: str = "") -> tuple[list[str], str]:
    """Returns overrides that put the models of a run on the only GPU of this machine, and a sentence about them.

    Neither, if there is not one GPU, if PyTorch is a build for CPUs, or if the config has another cluster, several sweeps, a generator of test images of its
    own, or shares (`pools.….num_gpus`, of which 0 means the CPU).

    Args:
        sources: YAML files and key=value overrides.
        configs: What they give.
        torch: The version of PyTorch. Empty: that of this environment.
    """
    given, config = given_keys(sources, files=True), configs[0]
    has_shares = any(re.fullmatch(r"pools\.\w+\.num_gpus", key) for key in given) or any(
        each.gpus for each in of_pools(configs)
    )
    is_for_cpus = (torch or version("torch")).endswith("+cpu")
    if is_for_cpus or has_shares or len(configs) > 1 or config.evaluate.generator is not None:
        return [], ""
    gpus = memories(config.ray.address)
    return divide(config, given, gpus[0]) if len(gpus) == 1 else ([], "")


def divide(config: Config, given: Sequence[str], memory: int) -> tuple[list[str], str]:
    """Returns what `share_gpu` returns for a GPU of so many bytes; 0: it is not known, and the smallest one is assumed."""
    name, values = _machine(memory)
    users = [role for role in POOLS if _has_weights(config, role)] if name else []
    if not users:
        return [], ""
    keys = {f"pools.{role}.{key}": value for role in users for key, value in values["pools"][role].items()}
    served = pools_by_role(config)  # a model with the work of two roles has the shares of both
    shares: dict[str, float] = {
        pool: round(sum(values["pools"][role]["num_gpus"] for role in POOLS if served[role] == pool), 2)
        for pool in users
    }
    keys |= {f"pools.{role}.num_gpus": share for role, share in shares.items()}
    if hasattr(config.backbone, "kv_cache_gb"):
        keys["backbone.kv_cache_gb"] = values["backbone"]["kv_cache_gb"]
    listed = ", ".join(f"{role} {share:g}" for role, share in shares.items())
    size = f"of {decimal(memory)}" if memory else "of unknown memory"
    return [f"{key}={value}" for key, value in keys.items() if key not in given], (
        f"one GPU {size}, shared as by {name}: {listed}; other shares are given by pools.….num_gpus, 0 for the CPU"
    )


def _machine(memory: int) -> tuple[str, Any]:
    """The config of the largest machine that such a GPU can stand for, with its name; an empty one if there is none."""
    known = sorted(
        (int(size[1]), name, path) for name, path in shipped_configs().items() if (size := _MACHINE.fullmatch(name))
    )
    fitting = [each for each in known if each[0] * 10**9 <= memory] if memory else known[:1]
    return (fitting[-1][1], OmegaConf.load(fitting[-1][2])) if fitting else ("", None)


def _has_weights(config: Config, role: str) -> bool:
    """Whether a service is a model that a GPU makes faster, as far as its component says."""
    settings = getattr(config, role)
    model = of_config(settings, role)
    is_network = issubclass(model, TargetComponent) and model.is_network
    return is_network or any(True for _ in model.weights(settings, site(config, role)))
