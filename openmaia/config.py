"""The schema of every config file: typed dataclasses are the schema and the only place of defaults, YAML the values.

Machine sections (`ray`, `pools`, `paths`) say where and how wide a run runs; all the others say what is measured, and
a run directory refuses to go on under other values of those.
"""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.errors import UsageError

MACHINE_SECTIONS = ("ray", "pools", "paths", "retries")
POOLS = ("target", "generator", "editor", "backbone")

POSITIVE = (
    "replicates exemplars.k generator.size limits.soft_turns limits.turns limits.minutes limits.tokens "
    "limits.reply_tokens limits.images_per_call sandbox.seconds sandbox.cpu_seconds sandbox.memory_mb "
    "sandbox.processes sandbox.output_bytes sandbox.scratch_mb sandbox.frame_mb evaluate.n evaluate.bootstrap "
    "ray.investigations ray.memory_mb"
).split() + [f"pools.{role}.{key}" for role in POOLS for key in ("replicas", "max_batch", "deadline")]
NOT_NEGATIVE = ("retries pictures.limit exemplars.quantile ray.num_cpus ray.cpus_per_investigation").split() + [
    f"pools.{role}.{key}" for role in POOLS for key in ("num_cpus", "num_gpus")
]


@dataclass
class TargetConfig:
    kind: str = "network"
    """network: an nn.Module read through hooks; closed_form: units computed from the pixels, with known truth."""
    name: str = MISSING
    """Names the target in units, records and folders."""
    network: str = ""
    """A network this package knows (efficientnet_lite0, efficientnet_lite2) or package.module:factory of your own."""
    weights: str = ""
    """A safetensors file, loaded into what the factory made; empty: as the factory made it."""
    layers: list[str] = field(default_factory=list[str])
    """Named modules of the network; `output` is its final output, read as class probabilities."""
    preprocess: str = "weights"
    """weights: the network's own preprocessing; published: as the published MAIA code does (shorter side, no crop)."""
    shuffled: bool = False
    """closed_form only, a control: every picture gets the answer to another one, so that nothing can be found out."""


@dataclass
class PicturesConfig:
    kind: str = "packages"
    """packages: photographs and cut-outs that ship in Debian and pip packages; folder: any tree of your own."""
    folder: str = ""
    limit: int = 0
    """At most this many pictures per half; 0 for all."""


@dataclass
class ExemplarsConfig:
    k: int = 15
    quantile: float = 0.99
    """Over all positions of all pictures: the mask threshold of a unit."""


@dataclass
class GeneratorConfig:
    kind: str = "collage"
    size: int = 224


@dataclass
class EditorConfig:
    kind: str = "collage"


@dataclass
class BackboneConfig:
    kind: str = "scripted"
    """scripted: a deterministic experimenter, no language model; replay: the replies of an earlier record."""
    eyes: str = "efficientnet_lite2"
    """scripted only: the network, other than the target's, whose class evidence the experimenter sees with."""
    record: str = ""
    """replay only: a record (.parquet) or a published history.json; {target}, {layer}, {index} are filled in."""


@dataclass
class TaskConfig:
    name: str = "description"
    """A task of this package, or a folder with your own prompts."""


@dataclass
class LimitsConfig:
    soft_turns: int = 10
    """After this many turns the agent is asked for its final answer."""
    turns: int = 14
    minutes: float = 30.0
    tokens: int = 2_000_000
    """Prompt and generated tokens of one investigation together."""
    reply_tokens: int = 4096
    images_per_call: int = 128


@dataclass
class SandboxConfig:
    seconds: float = 60.0
    cpu_seconds: int = 600
    memory_mb: int = 1024
    processes: int = 1
    """With 1 the agent's code cannot start another process at all."""
    output_bytes: int = 64_000
    scratch_mb: int = 64
    frame_mb: int = 64
    allow_none: bool = False


@dataclass
class EvaluateConfig:
    n: int = 10
    """Positive and as many neutral images per description."""
    bootstrap: int = 2000


@dataclass
class PoolConfig:
    replicas: int = 1
    max_batch: int = 16
    deadline: float = 600.0
    """Seconds after which a batch counts as a death and its replica is replaced."""
    num_cpus: float = 0.0
    num_gpus: float = 0.0


@dataclass
class PoolsConfig:
    target: PoolConfig = field(default_factory=PoolConfig)
    generator: PoolConfig = field(default_factory=PoolConfig)
    editor: PoolConfig = field(default_factory=PoolConfig)
    backbone: PoolConfig = field(default_factory=PoolConfig)


@dataclass
class RayConfig:
    address: str = "local"
    """local: a cluster of this run's own; auto: the one running on this machine; host:port or ray://…: that one."""
    num_cpus: int = 0
    """Of a local cluster; 0 for what the machine has."""
    investigations: int = 4
    """Investigations under way at once."""
    cpus_per_investigation: float = 0.25
    memory_mb: int = 400
    """Declared per investigation, sandbox included."""


@dataclass
class PathsConfig:
    runs: str = "runs"
    exemplars: str = "exemplars"
    cache: str = "~/.cache/openmaia"


@dataclass
class Config:
    name: str = MISSING
    """Names the run directory."""
    units: str = MISSING
    """`layer4=122,210:layer3=5-31`, `layer4=random:20`, `random:20` (of each layer), `all`, or a JSON file."""
    seed: int = 0
    replicates: int = 1
    tools: list[str] = field(default_factory=list[str])
    """Functions of your own for the agent, package.module:function."""
    target: TargetConfig = field(default_factory=TargetConfig)
    pictures: PicturesConfig = field(default_factory=PicturesConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    editor: EditorConfig = field(default_factory=EditorConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    retries: int = 1
    """How often a failed unit is tried again within one run of the command."""
    pools: PoolsConfig = field(default_factory=PoolsConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)


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
    if "=" in source and not path.is_file():
        return _override(source)
    if not path.is_file():
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
    """Dotted names of all leaves."""
    for name in config:
        value = None if OmegaConf.is_missing(config, name) else config[name]
        if isinstance(value, DictConfig) and len(value):
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
    return config


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
        return {key: OmegaConf.select(OmegaConf.create(science), key) for key in keys(OmegaConf.create(science))}

    a, b = flat(one), flat(other)
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
