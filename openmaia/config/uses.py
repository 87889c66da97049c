"""Says which components use a config key, and refuses a key that the user set and that nothing in the config uses.

A key of a file is judged by the files up to and including its own: a later source may choose another component, and the
key is then without effect and gets its default (`openmaia config` says so). Keys of the machine in files never are
refused, because one machine file serves many components. What stands on the command line or in a call is judged by the
complete config.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from openmaia.config.machine import MACHINE_KEYS, MACHINE_SECTIONS, POOLS, TEST_GENERATOR, PoolConfig
from openmaia.config.models import SERVED
from openmaia.config.sections import Kinds, sections
from openmaia.config.sections import is_machine_key as is_components_machine_key
from openmaia.core.components import Component, component
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

SERVERS = ("openai", "anthropic")
EXPERIMENTERS = ("scripted", "replay", "python", *SERVED)
"""Kinds of backbones that run experiments."""
SCRIPTED_TASKS = ("description", "published", "bias", "spurious")
LABEL_TASKS = ("description", "published")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A rule: which components use some keys."""

    keys: tuple[str, ...]
    """Dotted keys, or beginnings of keys that end with a dot."""
    needs: str
    """The setting with which the keys are used, such as `backbone.kind=vllm`, for messages."""
    chooser: str
    """The key whose value stands in the way if the keys are not used, such as `backbone.kind`."""
    is_used: Callable[[Any], bool]
    """Returns whether a config (a `Config`, or a `DictConfig` with its keys) uses the keys."""
    excepted: tuple[str, ...] = ()
    """Keys that the beginnings in `keys` match and that the rule is not about."""

    def matches(self, key: str) -> bool:
        """Returns whether the rule is about a dotted key."""
        return any(key == own or (own.endswith(".") and key.startswith(own)) for own in self.keys) and not any(
            key == own or (own.endswith(".") and key.startswith(own)) for own in self.excepted
        )


def _select(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def _by(keys: str, chooser: str, *values: str, excepted: str = "") -> KeyUse:
    """Returns the rule that keys are used if the key `chooser` has one of some values."""
    return KeyUse(
        keys=tuple(keys.split()),
        needs=f"{chooser}={', '.join(values[:-1])}{' or ' * (len(values) > 1)}{values[-1]}",
        chooser=chooser,
        is_used=lambda config: _select(config, chooser) in values,
        excepted=tuple(excepted.split()),
    )


def _never(keys: str, needs: str, chooser: str) -> KeyUse:
    return KeyUse(tuple(keys.split()), needs, chooser, lambda config: False)


def _has_judge(config: Any) -> bool:
    judge, writer, agent = config.evaluate.judge, config.evaluate.writer.kind, config.backbone.kind
    if judge != "auto":
        return judge != "none"
    return (agent in (*SERVED, "scripted")) if writer == "auto" else (writer != "rules" or agent == "scripted")


def _may_be_several(config: Any, section: str, role: str) -> bool:
    """Returns whether the size of a pool has an effect: it has none, or its default, if the model is on a server."""
    pool, settings = _select(config, f"pools.{role}"), _select(config, section)
    is_served = settings is not None and (
        _component(section, settings).is_served if section in sections() else settings.kind in SERVERS
    )
    return not is_served or ((pool.min_replicas, pool.num_gpus) == (1, 0) and pool.max_replicas <= 1)


def _component(section: str, settings: Any) -> type[Component]:
    return component(sections()[section].role, settings.kind, section)


def _is_repeatable(config: Any, section: str) -> bool:
    settings = _select(config, section)
    return settings is None or _component(section, settings).is_repeatable(settings)


def _served(section: str, kinds: tuple[str, ...], every: tuple[str, ...]) -> tuple[KeyUse, ...]:
    """Returns the rules of a section that names a language model.

    Args:
        section: `backbone`, `viewer` or `evaluate.writer`.
        kinds: The kinds of language models that it may name.
        every: Its other kinds that use `temperature` and the other keys of a model, for none of them.
    """
    servers = tuple(kind for kind in kinds if kind in SERVERS)
    sampled = tuple(kind for kind in kinds if kind != "anthropic")  # Anthropic's newer models take one of the two
    each = [f"{section}.{key}" for key in ("temperature", "context_tokens", "images_per_prompt", "concurrency")]
    return (
        _by(" ".join(each), f"{section}.kind", *kinds, *every),
        _by(f"{section}.top_p", f"{section}.kind", *sampled),
        _by(f"{section}.base_url {section}.timeout {section}.tries", f"{section}.kind", *servers),
        *((_by(f"{section}.vllm.", f"{section}.kind", "vllm"),) if "vllm" in kinds else ()),
    )


USES: tuple[KeyUse, ...] = (
    # The agent.
    _by("backbone.eyes", "backbone.kind", "scripted"),
    _by("backbone.record", "backbone.kind", "replay", "labels"),
    _by("backbone.model", "backbone.kind", *SERVED, "labels"),
    *_served("backbone", SERVED, ()),
    _by("backbone.outage_minutes", "backbone.kind", *SERVERS, "python"),
    _by("backbone.protocol", "backbone.kind", *SERVED),
    _by("backbone.sees without sandbox. limits.soft_turns limits.turns limits.minutes limits.wall_minutes limits.tokens "
        "limits.images_per_call", "backbone.kind", *EXPERIMENTERS),
    _by("limits.reply_tokens", "backbone.kind", *SERVED, "python"),
    _by("task.evidence.", "backbone.kind", *EXPERIMENTERS, excepted="task.evidence.confirm"),
    _by("tools", "backbone.kind", "replay", "python", *SERVED),
    KeyUse(("task.name",), "a backbone that reads prompts (backbone.kind=vllm, openai or anthropic, or an object)",
           "backbone.kind", lambda c: can_do(c.backbone.kind, c.task.name)),
    # What describes images in words.
    _by("viewer.", "backbone.sees", "text"),
    _by("viewer.eyes", "viewer.kind", "scripted"),
    _by("viewer.model", "viewer.kind", *SERVERS),
    *_served("viewer", SERVERS, ()),
    _never("viewer.record viewer.sees viewer.protocol viewer.vllm.", "backbone.kind=…, as keys of backbone,", "viewer.kind"),
    _never("viewer.outage_minutes evaluate.writer.outage_minutes", "the key backbone.outage_minutes", "viewer.kind"),
    # The test of descriptions.
    _by("evaluate.writer.record", "evaluate.writer.kind", "replay"),
    _by("evaluate.writer.model evaluate.writer.sees evaluate.writer.protocol", "evaluate.writer.kind", *SERVED),
    *_served("evaluate.writer", SERVED, ()),
    _never("evaluate.writer.eyes", "the key backbone.eyes", "evaluate.writer.kind"),
    _by("evaluate.looks", "evaluate.preset", "labels"),
    KeyUse(("evaluate.random",), "photographs (evaluate.pictures above 0)", "evaluate.pictures",
           lambda c: c.evaluate.pictures > 0),
    _by("evaluate.detector evaluate.segmenter", "evaluate.judge", "detector"),
    KeyUse(("evaluate.detect",), "a judge (evaluate.judge)", "evaluate.judge", _has_judge),
    KeyUse(("evaluate.detect",), "photographs (evaluate.pictures above 0)", "evaluate.pictures",
           lambda c: c.evaluate.pictures > 0),
    # The machine. One process without a GPU calls a server.
    *(
        KeyUse(tuple(f"pools.{role}.{key}" for key in ("min_replicas", "max_replicas", "num_gpus")),
               f"another {section}.kind (one process without a GPU calls a server; raise {concurrency} instead)",
               f"{section}.kind", lambda c, section=section, role=role: _may_be_several(c, section, role))
        for role, section, concurrency in (
            ("backbone", "backbone", "backbone.concurrency"),
            ("generator", "generator", "generator.concurrency"),
            ("editor", "editor", "editor.concurrency"),
            (TEST_GENERATOR, "evaluate.generator", "evaluate.generator.concurrency"),
        )
    ),
    _by("pools.backbone.kv_cache_gb", "backbone.kind", "vllm"),
    _by("pools.backbone.max_batch", "backbone.kind", "scripted", "replay", "labels"),
    *(
        KeyUse((f"pools.{role}.cache_mb", f"pools.{role}.spill_mb"), f"a {section} whose images can be repeated",
               f"{section}.kind", lambda c, section=section: _is_repeatable(c, section))
        for role, section in (("generator", "generator"), ("editor", "editor"))
    ),
    KeyUse((f"pools.{TEST_GENERATOR}.",), "evaluate.generator.kind", "evaluate.generator",
           lambda c: c.evaluate.generator is not None),
    _by("ray.num_cpus", "ray.address", "local"),
    KeyUse(("ray.wait_seconds",), "ray.address of a running cluster", "ray.address", lambda c: c.ray.address != "local"),
    _by("tracking.", "tracking.kind", "wandb", excepted="tracking.kind"),
)  # fmt: skip
"""The rules. A key that no rule is about is used by every component."""

_COMMANDS = {
    "openmaia run": ("bias.", "spurious."),
    "openmaia.sweep": ("bias.", "spurious.", "job."),
    "openmaia bias": ("spurious.",),
    "openmaia spurious": ("bias.",),
    "openmaia ablate": ("bias.", "spurious."),
    "openmaia evaluate": ("ray.", "job.", "retries", "sandbox.", "tracking."),
    **dict.fromkeys(
        ("openmaia investigate", "openmaia.investigate", "openmaia.open"),
        (
            *("ray.", "job.", "tracking.", "retries", "replicates", "bias.", "spurious."),
            *(
                f"pools.{role}.{key}"
                for role in (*POOLS, TEST_GENERATOR)
                for key in (PoolConfig.__annotations__.keys() | {"cache_mb", "spill_mb"}) - {"num_gpus"}
            ),
        ),
    ),
    "openmaia submit slurm": ("job.head_cpus", "job.head_memory_gb", "job.runtime_env."),
    "openmaia submit kuberay": ("job.runtime_env.",),
    "openmaia submit ray": ("job.nodes", "job.cpus", "job.gpus", "job.memory_gb", "job.hours", "job.head_"),
}
"""For each command and Python function, the keys, or beginnings of keys, that it does not use."""

_SWEEPS = "openmaia run and openmaia.sweep"
_USERS = {
    **dict.fromkeys(("ray.", "tracking.", "retries", "replicates", "pools.", "sandbox."), _SWEEPS),
    **{"bias.": "openmaia bias", "spurious.": "openmaia spurious"},
    **{"job.head_": "openmaia submit kuberay", "job.runtime_env.": "openmaia submit ray"},
    "job.": "openmaia submit slurm and openmaia submit kuberay",
}
"""For beginnings of the keys in _COMMANDS, what uses them. The first that fits counts."""


def can_do(kind: str, task: str) -> bool:
    """Returns whether a backbone of a kind can do a task. Only language models and people read prompts of the user.

    The result is True for a task that does not exist, which is another mistake.
    """
    tasks = {"scripted": SCRIPTED_TASKS, "labels": LABEL_TASKS}.get(kind)
    is_own = task not in SCRIPTED_TASKS and (user_path(task) / "user.md").is_file()
    return tasks is None or task in tasks or not (is_own or task in SCRIPTED_TASKS)


def is_machine_key(key: str, kinds: Kinds) -> bool:
    """Returns whether a key says where and with how many processes a run is executed, and not what is measured.

    Args:
        key: The dotted key.
        kinds: The kind of each component.
    """
    return key.split(".")[0] in MACHINE_SECTIONS or key in MACHINE_KEYS or is_components_machine_key(key, kinds)


@cache
def rules_of(key: str) -> tuple[KeyUse, ...]:
    """Returns the rules about a dotted key."""
    return tuple(rule for rule in USES if rule.matches(key))


def unused(keys: Iterable[str], config: Any) -> dict[str, KeyUse]:
    """Returns those of some keys that a config does not use, each with the rule that says so."""
    found: dict[str, KeyUse] = {}
    for key in keys:
        if rule := next((rule for rule in rules_of(key) if not rule.is_used(config)), None):
            found[key] = rule
    return found


def refuse(keys: Iterable[str], config: Any) -> None:
    """Checks that a config uses keys that the user set.

    Raises:
        UsageError: It does not use some of them. The message names them, the components that cannot use them, and what
            can.
    """
    reasons: dict[tuple[str, str], list[str]] = {}
    for key, rule in unused(keys, config).items():
        value = _select(config, rule.chooser)
        chosen = f"{rule.chooser}={repr(value) if value == '' else value}"
        reasons.setdefault((chosen, rule.needs), []).append(key)
    if reasons:
        raise UsageError(
            "; ".join(
                f"{', '.join(several)}: {chosen} cannot use {'it' if len(several) == 1 else 'them'}; {needs} can"
                for (chosen, needs), several in reasons.items()
            )
            + ". Leave out what cannot be used, or give what can use it"
        )


def refuse_of_command(command: str, keys: Sequence[str]) -> None:
    """Checks that a command uses keys that were set on its command line, or a Python function those in its call.

    Args:
        command: Such as `openmaia investigate`, or `openmaia.investigate` for the function.
        keys: The dotted keys.

    Raises:
        UsageError: It does not use one of them.
    """
    if wrong := [key for key in keys if key.startswith(_COMMANDS.get(command, ()))]:
        users = dict.fromkeys(next(text for start, text in _USERS.items() if key.startswith(start)) for key in wrong)
        raise UsageError(
            f"{', '.join(wrong)}: {command} cannot use {'it' if len(wrong) == 1 else 'them'}; {' and '.join(users)} can. "
            "Leave out what cannot be used"
        )
