"""YAML files and key=value overrides -> a resolved config, checked before anything runs."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.errors import UsageError
from openmaia.schema import MACHINE_SECTIONS, POOLS, BackboneConfig, Config

SERVED = ("vllm", "openai", "anthropic")
"""Backbones that are language models."""

SWEEPS = "sweeps"
"""The key of a file that stands for several sweeps; no key of a config."""

SHARED = (*MACHINE_SECTIONS, "pictures", "generator", "editor", "backbone")
"""What sweeps of one command have in common, because their pools are made from it."""

PRESETS = ("labels", "paper", "repo", "pairing")
WRITERS = ("rules", *SERVED, "replay")
JUDGES = ("auto", "eyes", "detector", "none")

INSTRUMENTS = ("dataset_exemplars", "text2image", "edit_images", "describe_images", "summarize_images")
"""Of the agent, those that it can be left without."""

FREE = (
    "backbone.vllm.arguments",
    "evaluate.writer.vllm.arguments",
    "target.directions",
    *(f"pools.{role}.node_labels" for role in POOLS),
)
"""Mappings whose keys are not ours."""

POSITIVE = (
    "replicates exemplars.k generator.size limits.soft_turns limits.turns limits.minutes limits.tokens "
    "limits.reply_tokens limits.images_per_call sandbox.seconds sandbox.cpu_seconds sandbox.memory_mb "
    "sandbox.processes sandbox.output_bytes sandbox.scratch_mb sandbox.frame_mb evaluate.n evaluate.bootstrap "
    "ray.investigations ray.investigations_per_process ray.memory_mb backbone.context_tokens backbone.images_per_prompt "
    "backbone.concurrency backbone.timeout backbone.tries backbone.vllm.tensor_parallel backbone.vllm.memory_fraction "
    "bias.pairs bias.rate "
    "spurious.per_cell spurious.epochs spurious.rate spurious.batch spurious.threads spurious.units spurious.draws "
    "spurious.balanced spurious.pool spurious.trials spurious.splits spurious.tolerance spurious.seeds "
    "tracking.every tracking.start_seconds tracking.finish_seconds job.nodes job.cpus job.memory_gb job.hours"
).split() + [f"pools.{role}.{key}" for role in POOLS for key in ("replicas", "max_batch", "deadline", "max_waiting")]
NOT_NEGATIVE = (
    "target.size spurious.weight_decay spurious.dropout spurious.validation spurious.probe "
    "retries evaluate.pictures evaluate.detect bias.smallest bias.failures ray.exemplar_workers ray.save_seconds pictures.limit exemplars.quantile ray.num_cpus ray.cpus_per_investigation "
    "ray.wait_seconds job.gpus pools.generator.cache_mb pools.generator.spill_mb pools.editor.cache_mb pools.editor.spill_mb"
).split() + [f"pools.{role}.{key}" for role in POOLS for key in ("num_cpus", "num_gpus")]


def load(sources: Sequence[str], _listing: str = "") -> Config:
    """YAML files and key=value overrides, later ones over earlier ones -> the resolved config.

    Raises UsageError for a missing file, an unknown key (with the nearest valid one), a value of the wrong type, or a
    required key without a value. _listing: the source whose sweeps are taken care of.
    """
    merged = OmegaConf.structured(Config)
    for source in sources:
        try:
            overlay = _overlay(source)
            if source == _listing:
                overlay.pop(SWEEPS)
            _refuse_unknown(overlay, source)
            merged = OmegaConf.merge(merged, overlay)
        except OmegaConfBaseException as error:
            raise UsageError(f"{source}: {_said(error)}") from error
    return _checked(cast(DictConfig, merged))


def load_sweeps(sources: Sequence[str]) -> list[Config]:
    """The configs of a command that may drive several sweeps at once.

    A file with the key `sweeps`, a list of config files (relative to its own folder), stands for each of them in turn:
    the command is read once for each, with that file, and then the other keys of the listing one, in its place. Raises
    UsageError as `load` does, and where two have one name or differ in what they share (machine sections and models).
    """
    listing = [(at, listed) for at, source in enumerate(sources) if (listed := _listed(source))]
    if not listing:
        return [load(sources)]
    if len(listing) > 1:
        raise UsageError(f"{sources[listing[0][0]]} and {sources[listing[1][0]]} both name sweeps; give one of them")
    at, listed = listing[0]
    found = [load([*sources[:at], path, *sources[at:]], _listing=sources[at]) for path in listed]
    for number, config in enumerate(found):
        if config.name in [other.name for other in found[:number]]:
            raise UsageError(f"{sources[at]}: two sweeps have the name {config.name!r}, and with it one run directory")
        differing = differing_keys(to_dict(found[0]), to_dict(config), SHARED)
        if differing:
            raise UsageError(
                f"{sources[at]}: sweeps of one command share their models and machines, but {', '.join(differing)} differ "
                f"between {found[0].name} and {config.name}; give them behind the listing file, or run the two one by one"
            )
    return found


def _listed(source: str) -> list[str]:
    """The config files that a source names as sweeps."""
    path = Path(source)
    if not path.is_file():
        return []
    paths: Any = _overlay(source).get(SWEEPS)
    if paths is None:
        return []
    if not isinstance(paths, ListConfig) or not paths or not all(isinstance(each, str) for each in paths):
        raise UsageError(f"{source}: sweeps is a list of config files, such as [resnet152.yaml, dino_vits8.yaml]")
    return [str(path.parent / cast(str, each)) for each in paths]


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
        if key == SWEEPS:
            raise UsageError(f"{source} names several sweeps; here one is needed, so give one of its files")
        if key not in known:
            if within := [name for name in known if name.startswith(f"{key}.")]:
                raise UsageError(f"{source}: {key} is a section; give one of its keys, such as {min(within)}")
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
    unknown = [name for name in config.without if name not in INSTRUMENTS]
    if unknown:
        raise UsageError(f"without={unknown}: no such instrument; expected some of {', '.join(INSTRUMENTS)}")
    own = config.target.synthetic
    if config.target.kind != "synthetic" and (own.mode or own.labels or own.folder):
        raise UsageError(
            f"target.synthetic is set, and target.kind={config.target.kind} has no such units; set target.kind=synthetic"
        )
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
    _refuse_writer(config)
    for role, service in (("generator", config.generator), ("editor", config.editor)):
        if service.kind == "diffusers" and not service.diffusion.model:
            raise UsageError(f"{role}.kind=diffusers needs {role}.diffusion.model, a hub id or a folder")


def _refuse_writer(config: Config) -> None:
    preset, writer, agent = config.evaluate.preset, config.evaluate.writer, config.backbone
    if preset not in PRESETS:
        raise UsageError(f"evaluate.preset={preset!r} is not known; expected {' or '.join(PRESETS)}")
    if config.evaluate.judge not in JUDGES:
        raise UsageError(f"evaluate.judge={config.evaluate.judge!r} is not known; expected {' or '.join(JUDGES)}")
    if config.evaluate.judge == "detector" and config.target.kind == "synthetic":
        raise UsageError(
            "evaluate.judge=detector would judge synthetic units by the detector that they are made of; "
            "give a language model as evaluate.writer, or evaluate.judge=none"
        )
    if writer.kind not in WRITERS:
        raise UsageError(f"evaluate.writer.kind={writer.kind!r} is not known; expected {' or '.join(WRITERS)}")
    if writer.kind in SERVED and not writer.model:
        raise UsageError(f"evaluate.writer.kind={writer.kind} needs evaluate.writer.model, the model's name there")
    if preset != "labels" and writer.kind == "rules":
        raise UsageError(
            f"evaluate.preset={preset} has its prompts written by a language model, and evaluate.writer.kind=rules is none; "
            "set evaluate.writer.kind and evaluate.writer.model"
        )
    if preset == "paper" and _model(writer) == _model(agent):
        raise UsageError(
            f"evaluate.preset=paper tests descriptions by another model than the one that wrote them; the agent is "
            f"{agent.model or agent.kind} ({agent.kind}) and evaluate.writer is {writer.model or writer.kind} "
            f"({writer.kind}): give evaluate.writer.model another one"
        )


def _model(backbone: BackboneConfig) -> str:
    """One model may be served in several ways, and from folders or hubs."""
    named = backbone.model if backbone.kind in SERVED else f"{backbone.kind} {backbone.record}"
    return named.rstrip("/").rsplit("/", 1)[-1].casefold()


def _refuse_out_of_range(merged: DictConfig) -> None:
    values: dict[str, float] = {key: OmegaConf.select(merged, key) for key in (*POSITIVE, *NOT_NEGATIVE)}
    wrong = [(key, "above 0") for key in POSITIVE if not values[key] > 0]
    wrong += [(key, "0 or more") for key in NOT_NEGATIVE if not values[key] >= 0]
    wrong += [
        (key, "0 or more, or null for the task's own")
        for key in (f"task.evidence.{name}" for name in ("experiments", "controls", "replicates", "confirm"))
        if (OmegaConf.select(merged, key) or 0) < 0
    ]
    wrong += [(key, "at most 1") for key in ("exemplars.quantile", "bias.rate") if values[key] > 1]
    for key, wanted in wrong:
        raise UsageError(f"{key}={OmegaConf.select(merged, key)} is out of range; give a value {wanted}")


def _said(error: OmegaConfBaseException) -> str:
    """The message, with the key it is about: OmegaConf names it on a line of its own."""
    key, said = error.full_key or "", str(error).splitlines()[0]
    if "Incompatible value 'None'" in said:
        said = "a value is missing"
    elif "is not a ListConfig" in said:
        said = f"a list is needed, such as {key}=[a,b]"
    return f"{key}: {said}" if key else said


def to_dict(config: Config) -> dict[str, Any]:
    return dataclasses.asdict(config)


def to_yaml(config: Config) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


def differing_keys(one: dict[str, Any], other: dict[str, Any], sections: Sequence[str] | None = None) -> list[str]:
    """Dotted keys whose values differ, in these sections or in all but the machine's. Both are resolved configs as plain
    dicts."""

    def flat(values: dict[str, Any]) -> dict[str, Any]:
        compared = {k: v for k, v in values.items() if (k in sections if sections else k not in MACHINE_SECTIONS)}
        made = OmegaConf.create(compared)
        return {key: OmegaConf.select(made, key) for key in keys(made)}

    a, b = flat(one), flat(other)
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
