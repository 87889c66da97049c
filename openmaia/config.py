"""YAML files and key=value overrides -> a resolved config, checked before anything runs."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.errors import UsageError
from openmaia.schema import MACHINE_SECTIONS, POOLS, Config

SERVED = ("vllm", "openai", "anthropic")
"""Backbones that are language models."""

FREE = ("backbone.vllm.arguments", "target.directions", *(f"pools.{role}.node_labels" for role in POOLS))
"""Mappings whose keys are not ours."""

POSITIVE = (
    "replicates exemplars.k generator.size limits.soft_turns limits.turns limits.minutes limits.tokens "
    "limits.reply_tokens limits.images_per_call sandbox.seconds sandbox.cpu_seconds sandbox.memory_mb "
    "sandbox.processes sandbox.output_bytes sandbox.scratch_mb sandbox.frame_mb evaluate.n evaluate.bootstrap "
    "ray.investigations ray.memory_mb ray.exemplar_workers backbone.context_tokens backbone.images_per_prompt "
    "backbone.concurrency backbone.timeout backbone.tries backbone.vllm.tensor_parallel backbone.vllm.memory_fraction "
    "job.nodes job.cpus job.memory_gb job.hours"
).split() + [f"pools.{role}.{key}" for role in POOLS for key in ("replicas", "max_batch", "deadline")]
NOT_NEGATIVE = (
    "retries ray.save_seconds pictures.limit exemplars.quantile ray.num_cpus ray.cpus_per_investigation "
    "ray.wait_seconds job.gpus"
).split() + [f"pools.{role}.{key}" for role in POOLS for key in ("num_cpus", "num_gpus")]


def load(sources: Sequence[str]) -> Config:
    """YAML files and key=value overrides, later ones over earlier ones -> the resolved config.

    Raises UsageError for a missing file, an unknown key (with the nearest valid one), a value of the wrong type, or a
    required key without a value.
    """
    merged = OmegaConf.structured(Config)
    for source in sources:
        try:
            overlay = _overlay(source)
            _refuse_unknown(overlay, source)
            merged = OmegaConf.merge(merged, overlay)
        except OmegaConfBaseException as error:
            raise UsageError(f"{source}: {_said(error)}") from error
    return _checked(cast(DictConfig, merged))


def _overlay(source: str) -> DictConfig:
    path = Path(source)
    if "=" in source and not is_file(path):
        return _override(source)
    if not is_file(path):
        raise UsageError(
            f"config {source!r} is neither a file nor key=value; give a YAML file such as configs/demo.yaml"
        )
    try:
        loaded = OmegaConf.load(path)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, DictConfig):
        raise UsageError(f"{source} holds a list; a config is a mapping of keys to values")
    return loaded


def is_file(path: Path) -> bool:
    """False as well for what cannot be the name of a file."""
    try:
        return path.is_file()
    except OSError:  # a long list of units, for example, is too long to be a file's name
        return False


def _override(source: str) -> DictConfig:
    try:
        return OmegaConf.from_dotlist([source])
    except yaml.YAMLError as error:
        raise UsageError(f"{source} has a value that is not valid YAML: {' '.join(str(error).split())}") from error


def _refuse_unknown(overlay: DictConfig, source: str) -> None:
    known = _known()
    for key in keys(overlay):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise UsageError(f"{source}: unknown key {key!r}; did you mean {near[0]!r}?")


@cache
def _known() -> frozenset[str]:
    return frozenset(keys(OmegaConf.structured(Config)))


def keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Dotted names of all leaves. Mappings with names of the user's own count as leaves."""
    for name in config:
        value = None if OmegaConf.is_missing(config, name) else config[name]
        if isinstance(value, DictConfig) and len(value) and f"{prefix}{name}" not in FREE:
            yield from keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _checked(merged: DictConfig) -> Config:
    missing = sorted(OmegaConf.missing_keys(merged))
    if missing:
        raise UsageError(f"the config leaves out {', '.join(missing)}; add it to the file or as {missing[0]}=VALUE")
    try:
        config = cast(Config, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        raise UsageError(_said(error)) from error
    if Path(config.name).name != config.name or config.name.startswith(".") or not config.name.isprintable():
        raise UsageError(f"name={config.name!r}: a run's name is one folder name, such as name=demo")
    if not config.name.strip() or not config.target.name.strip():
        raise UsageError(
            f"name={config.name!r}, target.name={config.target.name!r}: both need a name, such as name=demo"
        )
    _refuse_out_of_range(merged)
    if config.limits.soft_turns > config.limits.turns:
        raise UsageError(
            f"limits.soft_turns={config.limits.soft_turns} is above limits.turns={config.limits.turns}: the agent is "
            "asked for its answer at soft_turns, so make it the smaller one"
        )
    _refuse_contradictions(config)
    return config


def _refuse_contradictions(config: Config) -> None:
    backbone, pool = config.backbone, config.pools.backbone
    if backbone.kind in SERVED and not backbone.model:
        raise UsageError(f"backbone.kind={backbone.kind} needs backbone.model, the model's name there")
    if backbone.kind in ("openai", "anthropic") and pool.replicas != 1:
        raise UsageError(
            f"pools.backbone.replicas={pool.replicas} with backbone.kind={backbone.kind}: a server is asked by one process, "
            "so that backbone.concurrency limits all requests; give 1, and raise backbone.concurrency instead"
        )
    if backbone.kind in SERVED and backbone.context_tokens <= config.limits.reply_tokens:
        raise UsageError(
            f"backbone.context_tokens={backbone.context_tokens} leaves no room beside limits.reply_tokens="
            f"{config.limits.reply_tokens}; raise the one or lower the other"
        )
    if (
        backbone.kind == "vllm"
        and 0 < pool.num_gpus < backbone.vllm.tensor_parallel
        and backbone.vllm.tensor_parallel > 1
    ):
        raise UsageError(
            f"backbone.vllm.tensor_parallel={backbone.vllm.tensor_parallel} needs as many GPUs per replica; "
            f"pools.backbone.num_gpus={pool.num_gpus:g}"
        )
    for role, service in (("generator", config.generator), ("editor", config.editor)):
        if service.kind == "diffusers" and not service.diffusion.model:
            raise UsageError(f"{role}.kind=diffusers needs {role}.diffusion.model, a hub id or a folder")


def _refuse_out_of_range(merged: DictConfig) -> None:
    values: dict[str, float] = {key: OmegaConf.select(merged, key) for key in (*POSITIVE, *NOT_NEGATIVE)}
    wrong = [(key, "above 0") for key in POSITIVE if not values[key] > 0]
    wrong += [(key, "0 or more") for key in NOT_NEGATIVE if not values[key] >= 0]
    wrong += [("exemplars.quantile", "at most 1")] if values["exemplars.quantile"] > 1 else []
    for key, wanted in wrong:
        raise UsageError(f"{key}={values[key]} is out of range; give a value {wanted}")


def _said(error: OmegaConfBaseException) -> str:
    """The message, with the key it is about: OmegaConf names it on a line of its own."""
    key = error.full_key or ""
    return f"{key}: {str(error).splitlines()[0]}" if key else str(error).splitlines()[0]


def to_dict(config: Config) -> dict[str, Any]:
    return dataclasses.asdict(config)


def to_yaml(config: Config) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


def differing_keys(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Dotted keys whose values differ, machine sections left out. Both are resolved configs as plain dicts."""

    def flat(values: dict[str, Any]) -> dict[str, Any]:
        science = {k: v for k, v in values.items() if k not in MACHINE_SECTIONS}
        made = OmegaConf.create(science)
        return {key: OmegaConf.select(made, key) for key in keys(made)}

    a, b = flat(one), flat(other)
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
