"""Checks of the values of a complete config, at every load. They look at nothing but the values."""

import dataclasses
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING

from openmaia.config.schema import Config, prompt_writer
from openmaia.config.sections import find_components
from openmaia.core.components import ALIASES, BackboneConfig, component, of_config, target_class
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.secrets import hide_url_secrets
from openmaia.core.tools import BUILT_IN

_CREDENTIALS = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]*@", re.IGNORECASE)
"""Matches the start of a URL that contains a user name or a password."""

_SECRET = re.compile(r"hf_token|api_?key|password|secret", re.IGNORECASE)
"""Matches names of engine arguments whose values are secret."""


def check(
    config: Config, values: dict[str, Any], defaults: dict[str, Any], from_environment: Collection[str] = ()
) -> None:
    """Raises UsageError if a value is out of range, or if keys contradict each other.

    Args:
        config: The config.
        values: Its values by dotted key.
        defaults: The default values by dotted key.
        from_environment: The dotted keys, with the indices of lists, whose values were read from the environment.
    """
    _check_names(config)
    _check_secrets(values, from_environment)
    _check_homes(values)
    _check_ranges(config, values, defaults)
    _check_agent(config)
    _check_backbone(config)
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
            and (is_read or hide_url_secrets(value) != value)
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
    for key, value in values.items():
        if isinstance(value, str) and value.startswith("~"):
            try:
                user_path(value)
            except UsageError as error:
                raise UsageError(f"{key}={error.message}") from error


def _check_ranges(config: Config, values: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Checks that numbers are in range (`openmaia.core.components.within`), except `seed` and keys with a negative default."""
    for key, value in values.items():
        if expected := next(_violations(key, value, defaults[key], _metadata(config, key)), None):
            raise UsageError(f"{key}={value} is out of range; give a value {expected}")


def _metadata(config: Config, key: str) -> Mapping[str, Any]:
    """Returns the metadata of a key's field; empty for one inside of a mapping."""
    *sections, name = key.split(".")
    section: Any = config
    for each in sections:
        section = getattr(section, each, None)
    found = getattr(section, "__dataclass_fields__", {}).get(name)
    return found.metadata if found else {}


def _violations(key: str, value: Any, default: Any, metadata: Mapping[str, Any]) -> Iterator[str]:
    if key.startswith("task.evidence.") and (value or 0) < 0:
        yield "of 0 or more, or null for that of the task"
    if not isinstance(default, (int, float)) or isinstance(default, bool) or key == "seed":
        return
    may_be_zero, most = default == 0 or metadata.get("zero"), metadata.get("most")
    if default >= 0 and not (value >= 0 if may_be_zero else value > 0):
        yield "of 0 or more" if may_be_zero else "above 0"
    if value > (sys.float_info.max if most is None else most):
        yield "that is finite" if most is None else f"of at most {most}"
    if key.endswith(".num_gpus") and value > 1 and value != int(value):
        yield "of at most 1, or a whole number: above 1 Ray gives whole GPUs only"


def _check_agent(config: Config) -> None:
    unknown = [name for name in config.without if name not in BUILT_IN]
    if unknown:
        raise UsageError(f"without={unknown}: no such tool; expected some of {', '.join(BUILT_IN)}")
    if config.task.effects and not target_class(config.target).is_network:
        raise UsageError(
            f"task.effects=true: target.kind={config.target.kind} is no network whose units could be changed in a forward pass; "
            "leave it out"
        )
    if found := [*config.limits.problems(), *config.bank.problems()]:
        raise UsageError("; ".join(found))


def _check_backbone(config: Config) -> None:
    tokens = of_config(config.backbone).context_tokens(config.backbone)
    if tokens and tokens <= config.limits.reply_tokens:
        raise UsageError(
            f"backbone.context_tokens={tokens} leaves no room beside limits.reply_tokens="
            f"{config.limits.reply_tokens}; raise the one or lower the other"
        )


def _check_components(config: Config) -> None:
    for kind, settings, site in find_components(config):
        found = [
            f"{site.key}.kind={settings.kind} needs {site.key}.{each.name}"
            for each in dataclasses.fields(settings)
            if each.default == MISSING and not getattr(settings, each.name)
        ]
        if found := [*found, *kind.problems(settings, site)]:
            raise UsageError("; ".join(found))


def _check_writer(config: Config) -> None:
    asked, writer, agent = config.evaluate, prompt_writer(config), config.backbone
    if sorted({each for each in asked.looks if each > 0}) != asked.looks:
        raise UsageError(f"evaluate.looks={asked.looks}: give increasing numbers of images, such as [20,40,60], or []")
    kind = asked.sharing
    is_kind = kind in ALIASES["writer"] or ":" in kind
    if kind not in ("label", "labels") and not (is_kind and hasattr(component("writer", kind), "terms")):
        raise UsageError(
            f"evaluate.sharing={kind!r}; expected label, labels, or the kind of a writer that knows its words, such as scene_rules"
        )
    is_model = isinstance(writer, BackboneConfig)
    if asked.preset != "labels" and not is_model:
        given = f"evaluate.writer.kind={writer.kind}" if asked.writer else "evaluate.writer=null"
        raise UsageError(
            f"evaluate.preset={asked.preset} needs prompts written by a language model, and {given} gives "
            f"{writer.kind}; set evaluate.writer.kind and evaluate.writer.model"
        )
    if asked.preset == "paper" and is_model and _model(writer) == _model(agent):
        raise UsageError(
            "evaluate.preset=paper tests descriptions by another model than the one that wrote them; the agent is "
            f"{_name(agent)} ({agent.kind}) and evaluate.writer is {_name(writer)} "
            f"({writer.kind}): give evaluate.writer.model another one"
        )


def _name(backbone: BackboneConfig) -> str:
    return getattr(backbone, "model", "") or backbone.kind


def _model(backbone: BackboneConfig) -> str:
    """Returns a name that is equal for two backbones with the same model.

    For a language model it is the model's name in lower case, without its folder or hub owner, because one model may be
    served from several places.
    """
    name = _name(backbone) if of_config(backbone).reads_prompts else repr(backbone)
    return name.rstrip("/").rsplit("/", 1)[-1].casefold()
