"""Checks of a complete config: values out of range, and keys that contradict each other."""

import dataclasses
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING

from openmaia.config.models import SERVED, BackboneConfig
from openmaia.config.schema import Config, prompt_writer
from openmaia.config.sections import find_components
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.secrets import without_url_secrets

_PROTOCOLS = {"text": SERVED, "grammar": ("vllm", "openai"), "tools": ("openai",)}
"""For each value of `backbone.protocol`, the values of `backbone.kind` that support it."""
_CHOICES = {
    "target.kind": ("network", "synthetic", "closed_form"),
    "target.preprocess": ("weights", "published", "python"),
    "target.output": ("", "softmax", "sigmoid", "probabilities", "values"),
    "target.units": ("repo", "paper"),
    "target.synthetic.mode": ("", "mono", "or", "and", "andnot"),
    "target.family": ("small", "development", "held_out", "biased"),
    "backbone.kind": ("scripted", "replay", "labels", "python", *SERVED),
    "backbone.sees": ("images", "text"),
    "backbone.protocol": tuple(_PROTOCOLS),
    "viewer.kind": ("scripted", "openai", "anthropic", "none"),
    "evaluate.writer.protocol": tuple(_PROTOCOLS),
    "tracking.kind": ("none", "wandb"),
    "tracking.mode": ("online", "offline", "disabled"),
    "pictures.kind": ("packages", "folder", "hf", "python"),
    "evaluate.preset": ("labels", "paper", "repo", "pairing"),
    "evaluate.sharing": ("label", "labels"),
    "evaluate.judge": ("auto", "eyes", "detector", "none"),
    "evaluate.writer.kind": ("auto", "rules", *SERVED, "replay"),
}
"""The allowed values of each config key that has a fixed set of them."""
_PICTURES = {
    "folder": "name the folder of the images",
    "dataset": "give a dataset on the hub, or imagefolder with pictures.data=FOLDER",
}
_TOOLS = ("dataset_exemplars", "text2image", "edit_images", "describe_images", "summarize_images")
"""Names of the tools that the key `without` can withhold from the agent."""

_MAY_BE_ZERO = frozenset(
    "retries cache_mb spill_mb evaluate.pictures evaluate.detect evaluate.random_words evaluate.random bias.smallest "
    "bias.failures exemplars.quantile "
    "backbone.temperature writer.temperature ray.cpus_per_investigation ray.wait_seconds "
    "spurious.weight_decay spurious.dropout spurious.validation spurious.probe".split()
)
"""Dotted keys, or ends of dotted keys, whose value may be 0 although their default is above 0."""

_CREDENTIALS = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]*@", re.IGNORECASE)
"""Matches the start of a URL that contains a user name or a password."""

_SECRET = re.compile(r"hf_token|api_?key|password|secret", re.IGNORECASE)
"""Matches names of engine arguments whose values are secret."""

_AT_MOST = {
    **dict.fromkeys(("exemplars.quantile", "bias.rate", "target.crop"), 1),
    **{"replicates": 10_000, "job.nodes": 100_000, "evaluate.bootstrap": 1_000_000},
}
"""The largest values of keys. Larger ones than the last are mistakes that would take all memory or never end."""


def check(
    config: Config, values: dict[str, Any], defaults: dict[str, Any], from_environment: Collection[str] = ()
) -> None:
    """Checks a complete config.

    Args:
        config: The config.
        values: Its values by dotted key.
        defaults: The default values by dotted key.
        from_environment: The dotted keys, with the indices of lists, whose values were read from the environment.

    Raises:
        UsageError: A value is out of range, or keys contradict each other.
    """
    _check_names(config)
    _check_secrets(values, from_environment)
    _check_homes(values)
    _check_choices(values)
    _check_ranges(values, defaults)
    _check_normalisation(config)
    _check_agent(config)
    _check_backbone(config)
    _check_eyes(config)
    _check_writer(config)
    _check_components(config)


def _check_names(config: Config) -> None:
    if Path(config.name).name != config.name or config.name.startswith(".") or not config.name.isprintable():
        raise UsageError(f"name={config.name!r}: the name of a run has to be a folder name, such as name=demo")
    if not config.name.strip() or not config.target.name.strip():
        raise UsageError(
            f"name={config.name!r}, target.name={config.target.name!r}: both need a name, such as name=demo"
        )


def _check_secrets(values: dict[str, Any], from_environment: Collection[str]) -> None:
    """Refuses passwords and keys that are written out. The message does not repeat them."""
    for key, value in _leaves(values):
        is_read = any(key == each or key.startswith(f"{each}.") for each in from_environment)
        if (
            key.startswith("job.runtime_env.")
            and isinstance(value, str)
            and (is_read or without_url_secrets(value) != value)
        ):
            raise UsageError(
                f"{key} holds a value from the environment or a URL with a password or a query, and Ray stores and shows it; "
                "set PIP_INDEX_URL or the like on the nodes, or give job.runtime_env.image_uri or py_executable"
            )
        if isinstance(value, str) and not is_read and _CREDENTIALS.search(value):
            raise UsageError(
                f"{key} holds a user or a password before the @; put the address into an environment variable, and give "
                f"{key}='${{oc.env:NAME}}'. Keys belong into variables such as OPENAI_API_KEY"
            )
        is_own = ".arguments." not in key
        if is_own and key.endswith("base_url") and ("?" in value or "#" in value):
            raise UsageError(f"{key} has a ? or #; give the address only, such as http://127.0.0.1:8000/v1")
        if not is_own and not is_read and _SECRET.search(key.partition(".arguments.")[2]):
            raise UsageError(
                f"{key} would be stored with the run; set the environment variable of the nodes instead, such as "
                f"HF_TOKEN or VLLM_API_KEY, or give '${{oc.env:NAME}}'"
            )


def _leaves(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key and the value of everything that is in `values`, also inside of lists and mappings."""
    pairs = cast("Mapping[Any, Any]", values).items() if isinstance(values, Mapping) else enumerate(values)
    for name, value in pairs:
        if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _check_homes(values: dict[str, Any]) -> None:
    """Checks that the users exist in whose home directories paths are."""
    for key, value in values.items():
        if isinstance(value, str) and value.startswith("~"):
            try:
                user_path(value)
            except UsageError as error:
                raise UsageError(f"{key}={error.message}") from error


def _check_choices(values: dict[str, Any]) -> None:
    for key, choices in _CHOICES.items():
        if values[key] not in choices:
            expected = " or ".join(choice or "nothing" for choice in choices)
            raise UsageError(f"{key}={values[key]!r} is not known; expected {expected}")


def _check_ranges(values: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Checks that numbers are in range, except `seed` and keys with a negative default.

    A number has to be above 0 if its default is. It may be 0 if its default is 0 or null, or if its key is in
    _MAY_BE_ZERO. It has to be finite, and values of keys in _AT_MOST must not exceed the limit there.
    """
    for key, value in values.items():
        if expected := next(_violations(key, value, defaults[key]), None):
            raise UsageError(f"{key}={value} is out of range; give a value {expected}")


def _violations(key: str, value: Any, default: Any) -> Iterator[str]:
    if key.startswith("task.evidence.") and (value or 0) < 0:
        yield "of 0 or more, or null for that of the task"
    if not isinstance(default, (int, float)) or isinstance(default, bool) or key == "seed":
        return
    may_be_zero = default == 0 or any(key == end or key.endswith(f".{end}") for end in _MAY_BE_ZERO)
    if default >= 0 and not (value >= 0 if may_be_zero else value > 0):
        yield "of 0 or more" if may_be_zero else "above 0"
    if value > _AT_MOST.get(key, sys.float_info.max):
        yield f"of at most {_AT_MOST[key]}" if key in _AT_MOST else "that is finite"


def _check_normalisation(config: Config) -> None:
    mean, std = config.target.mean, config.target.std
    if len(mean) != len(std) or len(mean) not in (0, 1, 3) or not all(value > 0 for value in std):
        raise UsageError(
            f"target.mean={mean} target.std={std}: give both, with one value for each channel (three for red, green and "
            "blue, one for grey images), and values above 0 as std"
        )


def _check_agent(config: Config) -> None:
    unknown = [name for name in config.without if name not in _TOOLS]
    if unknown:
        raise UsageError(f"without={unknown}: no such tool; expected some of {', '.join(_TOOLS)}")
    if config.limits.soft_turns > config.limits.turns:
        raise UsageError(
            f"limits.soft_turns={config.limits.soft_turns} is above limits.turns={config.limits.turns}: the agent is "
            "asked for its answer at soft_turns, so make it the smaller one"
        )
    pictures = config.pictures
    for kind, key in (("folder", "folder"), ("hf", "dataset")):
        if pictures.kind == kind and not getattr(pictures, key):
            raise UsageError(f"pictures.kind={kind} needs pictures.{key}; {_PICTURES[key]}")
    if config.pictures.streaming and not config.pictures.limit:
        raise UsageError(
            "pictures.streaming=true needs pictures.limit, the number of images to take; give for example 1000"
        )


def _check_backbone(config: Config) -> None:
    backbone, pool = config.backbone, config.pools.backbone
    if backbone.kind in SERVED and not backbone.model:
        raise UsageError(f"backbone.kind={backbone.kind} needs backbone.model, the model's name there")
    if backbone.kind == "labels" and not (backbone.model and backbone.record):
        raise UsageError(
            "backbone.kind=labels needs backbone.record, the file with the labels, and backbone.model, the name of the method"
        )
    kinds = _PROTOCOLS[backbone.protocol]
    if backbone.kind in SERVED and backbone.kind not in kinds:
        raise UsageError(
            f"backbone.protocol={backbone.protocol} is not for backbone.kind={backbone.kind}; expected {' or '.join(kinds)}"
        )
    if backbone.kind == "replay" and not backbone.record:
        raise UsageError("backbone.kind=replay needs backbone.record, the record whose replies are repeated")
    if backbone.sees == "text" and config.viewer.kind in ("openai", "anthropic") and not config.viewer.model:
        raise UsageError(f"viewer.kind={config.viewer.kind} needs viewer.model, the model's name there")
    if backbone.kind in SERVED and backbone.context_tokens <= config.limits.reply_tokens:
        raise UsageError(
            f"backbone.context_tokens={backbone.context_tokens} leaves no room beside limits.reply_tokens="
            f"{config.limits.reply_tokens}; raise the one or lower the other"
        )
    parallel = backbone.vllm.tensor_parallel
    if backbone.kind == "vllm" and parallel > 1 and 0 < pool.num_gpus < parallel:
        raise UsageError(
            f"backbone.vllm.tensor_parallel={parallel} needs as many GPUs per replica; "
            f"pools.backbone.num_gpus={pool.num_gpus:g}"
        )


def _check_components(config: Config) -> None:
    for component, settings, site in find_components(config):
        found = [
            f"{site.key}.kind={settings.kind} needs {site.key}.{each.name}"
            for each in dataclasses.fields(settings)
            if each.default == MISSING and not getattr(settings, each.name)
        ]
        if found := [*found, *component.problems(settings, site)]:
            raise UsageError("; ".join(found))


def _check_eyes(config: Config) -> None:
    """Checks that scripted agent, judge and viewer do not see images through the network under study."""
    used: dict[str, str] = {}
    if config.backbone.kind == "scripted" or config.evaluate.judge == "eyes":
        used["backbone.eyes"] = config.backbone.eyes
    if config.backbone.sees == "text" and config.viewer.kind == "scripted":
        used["viewer.eyes"] = config.viewer.eyes
    for key, eyes in used.items():
        if eyes == config.target.network:
            raise UsageError(
                f"{key}={eyes!r} is the network under study; experimenter, viewer and judge must see with another one, "
                "such as efficientnet_lite2"
            )


def _check_writer(config: Config) -> None:
    asked, writer, agent = config.evaluate, prompt_writer(config), config.backbone
    if sorted({each for each in asked.looks if each > 0}) != asked.looks:
        raise UsageError(f"evaluate.looks={asked.looks}: give increasing numbers of images, such as [20,40,60], or []")
    if asked.judge == "detector" and config.target.kind == "synthetic":
        raise UsageError(
            "evaluate.judge=detector would judge synthetic units by the detector that they are made of; "
            "give a language model as evaluate.writer, or evaluate.judge=none"
        )
    if writer.kind in SERVED and not writer.model:
        raise UsageError(f"evaluate.writer.kind={writer.kind} needs evaluate.writer.model, the model's name there")
    if asked.preset != "labels" and writer.kind == "rules":
        raise UsageError(
            f"evaluate.preset={asked.preset} needs prompts written by a language model, and "
            f"evaluate.writer.kind={asked.writer.kind} gives rules; set evaluate.writer.kind and evaluate.writer.model"
        )
    if asked.preset == "paper" and _model(writer) == _model(agent):
        raise UsageError(
            "evaluate.preset=paper tests descriptions by another model than the one that wrote them; the agent is "
            f"{agent.model or agent.kind} ({agent.kind}) and evaluate.writer is {writer.model or writer.kind} "
            f"({writer.kind}): give evaluate.writer.model another one"
        )


def _model(backbone: BackboneConfig) -> str:
    """Returns a name that is equal for two backbones with the same model.

    For a language model it is the model's name in lower case, without its folder or hub owner, because one model may be
    served from several places. For other kinds it is made of the kind and the record file.
    """
    name = backbone.model if backbone.kind in SERVED else f"{backbone.kind} {backbone.record}"
    return name.rstrip("/").rsplit("/", 1)[-1].casefold()
