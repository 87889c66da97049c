"""Says which components use a config key, and refuses a key that the user set and that nothing in the config uses.

A key of a file is judged by the files up to and including its own: a later source may choose another component, and the
key is then without effect and gets its default (`openmaia config` says so). Machine keys in files are never refused,
because one machine file serves many components. Overrides are judged by the complete config.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from openmaia.config.machine import MACHINE_SECTIONS, POOLS, TEST_GENERATOR, PoolConfig
from openmaia.config.schema import pools_by_role
from openmaia.config.sections import Kinds, is_viewed, sections
from openmaia.config.sections import is_machine_key as is_components_machine_key
from openmaia.core.components import BackboneConfig, Component, component
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

_TASKS = ("description", "published", "bias", "spurious")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A rule: what uses some keys."""

    keys: tuple[str, ...]
    """Dotted, or beginnings that end with a dot."""
    needs: str
    """With what the keys are used, such as `backbone.kind=vllm`, for messages."""
    chooser: str
    """The key whose value stands in the way otherwise, such as `backbone.kind`."""
    is_used: Callable[[Any], bool]
    """Takes a `Config`, or a `DictConfig` with its keys."""
    excepted: tuple[str, ...] = ()
    """Keys that `keys` match and that the rule is not about."""

    def matches(self, key: str) -> bool:
        return any(key == own or (own.endswith(".") and key.startswith(own)) for own in self.keys) and not any(
            key == own or (own.endswith(".") and key.startswith(own)) for own in self.excepted
        )


def _select(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def _section(config: Any, key: str) -> Any:
    """None: it is absent, or a file that has not been merged yet brings it."""
    settings = _select(config, key)
    return None if isinstance(settings, DictConfig) and OmegaConf.is_missing(settings, "kind") else settings


def _by(keys: str, chooser: str, *values: str, excepted: str = "") -> KeyUse:
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
    judge, writer = _section(config, "evaluate.judge"), _section(config, "evaluate.writer")
    agent = _component("backbone", config.backbone)
    if judge is not None:
        return not _component("evaluate.judge", judge).is_absent
    if writer is None:
        is_model = agent.reads_prompts
    else:
        is_model = issubclass(_component("evaluate.writer", writer).Config, BackboneConfig)
    return is_model or agent.judge(config.backbone) is not None


def _may_be_several(config: Any, section: str, role: str) -> bool:
    pool, settings = _select(config, f"pools.{role}"), _section(config, section)
    is_served = settings is not None and _component(section, settings).is_served
    # On a server the size has no effect; its default is no mistake.
    return not is_served or ((pool.min_replicas, pool.num_gpus) == (1, 0) and pool.max_replicas <= 1)


def _component(section: str, settings: Any) -> type[Component]:
    return component(sections()[section].role, settings.kind, section)


def _is_repeatable(config: Any, section: str) -> bool:
    settings = _section(config, section)
    return settings is None or _component(section, settings).is_repeatable(settings)


def _backbone(keys: str, needs: str, test: Callable[[type[Component]], bool], excepted: str = "") -> KeyUse:
    return KeyUse(
        keys=tuple(keys.split()),
        needs=needs,
        chooser="backbone.kind",
        is_used=lambda config: test(_component("backbone", config.backbone)),
        excepted=tuple(excepted.split()),
    )


def _experiments(backbone: type[Component]) -> bool:
    return backbone.experiments


def _is_free(backbone: type[Component]) -> bool:
    """Whether a backbone writes anew what it is asked for."""
    return backbone.tasks is None and not backbone.is_recorded


def _waits(config: Any) -> bool:
    """Whether investigations may wait for a server, or for an object that was passed."""
    given = [(key, settings) for key in sections() if (settings := _section(config, key)) is not None]
    return any(_component(*each).is_served for each in given) or _is_free(_component("backbone", config.backbone))


USES: tuple[KeyUse, ...] = (
    # The agent.
    KeyUse(("backbone.outage_minutes",), "a model on a server", "backbone.kind", _waits),
    KeyUse(("bank.",), "a bank (bank.images above 0)", "bank.images", lambda c: c.bank.images > 0, ("bank.images",)),
    KeyUse(("shared.look_up",), "shared images (shared.images above 0)", "shared.images", lambda c: c.shared.images > 0),
    KeyUse(("shared.look_up",), "one investigation of each unit (replicates=1)", "replicates", lambda c: c.replicates == 1),
    _backbone("shared.look_up", "a language model, or the replay of one", lambda each: each.tasks is None),
    _backbone("backbone.sees without sandbox. limits. bank. shared.", "a backbone that runs experiments", _experiments,
              excepted="limits.reply_tokens"),
    _backbone("limits.reply_tokens", "a language model", _is_free),
    _backbone("task.evidence.", "a backbone that runs experiments", _experiments, excepted="task.evidence.confirm"),
    _backbone("tools task.hypotheses. task.effects", "a language model, or the replay of one", lambda each: each.tasks is None),
    KeyUse(("task.name",), "a backbone that reads prompts (backbone.kind=vllm, openai or anthropic, or an object)",
           "backbone.kind", lambda c: can_do(_component("backbone", c.backbone), c.task.name)),
    # What describes images in words.
    KeyUse(("viewer.",), "backbone.sees=text", "backbone.sees", is_viewed),
    _never("viewer.sees viewer.protocol", "backbone.kind=…, as keys of backbone,", "viewer.kind"),
    _never("viewer.outage_minutes evaluate.writer.outage_minutes", "the key backbone.outage_minutes", "viewer.kind"),
    # The test of descriptions.
    _by("evaluate.looks", "evaluate.preset", "labels"),
    KeyUse(("evaluate.random",), "photographs (evaluate.pictures above 0)", "evaluate.pictures",
           lambda c: c.evaluate.pictures > 0),
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
    _backbone("pools.backbone.max_batch", "a backbone that answers one conversation after another",
              lambda each: not _is_free(each)),
    *(
        KeyUse((f"pools.{role}.cache_mb", f"pools.{role}.spill_mb"), f"a {section} whose images can be repeated",
               f"{section}.kind", lambda c, section=section: _is_repeatable(c, section))
        for role, section in (("generator", "generator"), ("editor", "editor"))
    ),
    KeyUse(("pools.editor.",), "an editor with a model of its own (pools.generator holds this one)", "editor.kind",
           lambda c: _section(c, "editor") is None or pools_by_role(c)["editor"] == "editor"),
    KeyUse((f"pools.{TEST_GENERATOR}.",), "evaluate.generator.kind", "evaluate.generator",
           lambda c: c.evaluate.generator is not None),
    _by("ray.num_cpus", "ray.address", "local"),
    KeyUse(("ray.wait_seconds",), "ray.address of a running cluster", "ray.address", lambda c: c.ray.address != "local"),
    _by("tracking.", "tracking.kind", "wandb", excepted="tracking.kind"),
)  # fmt: skip
"""A key that no rule is about is used by every component."""

# What an investigation in one process does not use.
_ALONE = (
    *("ray.", "job.", "tracking.", "retries", "replicates", "bias.", "spurious.", "shared."),
    *(
        f"pools.{role}.{key}"
        for role in (*POOLS, TEST_GENERATOR)
        for key in (PoolConfig.__annotations__.keys() | {"cache_mb", "spill_mb"}) - {"num_gpus"}
    ),
)
# The keys, or beginnings of keys, that a command or function does not use.
_COMMANDS = {
    "openmaia run": ("bias.", "spurious."),
    "openmaia.sweep": ("bias.", "spurious.", "job."),
    "openmaia study bias": ("spurious.",),
    "openmaia study spurious": ("bias.",),
    "openmaia study ablate": ("bias.", "spurious."),
    "openmaia evaluate": ("ray.", "job.", "retries", "sandbox.", "tracking."),
    "openmaia.load_models": ("ray.", "job.", "retries", "sandbox.", "tracking.", "budget"),
    **dict.fromkeys(("openmaia investigate", "openmaia.environment", "openmaia mcp"), _ALONE),
    # Without a run directory there is no sum to compare.
    **dict.fromkeys(("openmaia.investigate", "openmaia.open"), (*_ALONE, "budget")),
    "openmaia submit slurm": ("job.head_cpus", "job.head_memory_gb", "job.runtime_env."),
    "openmaia submit kuberay": ("job.runtime_env.",),
    "openmaia submit ray": ("job.nodes", "job.cpus", "job.gpus", "job.memory_gb", "job.hours", "job.head_"),
}

_SWEEPS = "openmaia run and openmaia.sweep"
# What uses the keys in _COMMANDS. The first beginning that fits counts.
_USERS = {
    **dict.fromkeys(("ray.", "tracking.", "retries", "replicates", "pools.", "sandbox.", "budget", "shared."), _SWEEPS),
    **{"bias.": "openmaia study bias", "spurious.": "openmaia study spurious"},
    **{"job.head_": "openmaia submit kuberay", "job.runtime_env.": "openmaia submit ray"},
    "job.": "openmaia submit slurm and openmaia submit kuberay",
}


def can_do(backbone: type[Component], task: str) -> bool:
    """Returns whether a backbone can do a task. Only language models and people read prompts of the user. True for a
    task that does not exist, which is another mistake."""
    if backbone.tasks is None or task in backbone.tasks:
        return True
    return not (task in _TASKS or (user_path(task) / "user.md").is_file())


def is_machine_key(key: str, kinds: Kinds) -> bool:
    """Returns whether a key may change on resume."""
    return key.split(".")[0] in MACHINE_SECTIONS or is_components_machine_key(key, kinds)


@cache
def rules_of(key: str) -> tuple[KeyUse, ...]:
    """Returns the rules about a dotted key."""
    return tuple(rule for rule in USES if rule.matches(key))


def find_unused(keys: Iterable[str], config: Any) -> dict[str, KeyUse]:
    """Returns those keys that a config does not use, with the rule that says so."""
    found: dict[str, KeyUse] = {}
    for key in keys:
        if rule := next((rule for rule in rules_of(key) if not rule.is_used(config)), None):
            found[key] = rule
    return found


def chosen(rule: KeyUse, config: Any) -> str:
    """Returns the setting that stands in the way, such as `backbone.kind=openai`."""
    value = _select(config, rule.chooser)
    if rule.chooser in sections():
        return f"{rule.chooser}=null" if value is None else f"{rule.chooser}.kind={value.kind}"
    return f"{rule.chooser}={repr(value) if value == '' else value}"


def refuse(keys: Iterable[str], config: Any) -> None:
    """Refuses keys that a config does not use. The UsageError names them, what cannot use them, and what can."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for key, rule in find_unused(keys, config).items():
        reasons.setdefault((chosen(rule, config), rule.needs), []).append(key)
    if reasons:
        raise UsageError(
            "; ".join(
                f"{', '.join(several)}: {setting} cannot use {'it' if len(several) == 1 else 'them'}; {needs} can"
                for (setting, needs), several in reasons.items()
            )
            + ". Leave out what cannot be used, or give what can use it"
        )


def refuse_of_command(command: str, keys: Sequence[str]) -> None:
    """Refuses dotted keys that a command or a function, such as `openmaia.investigate`, does not use."""
    if wrong := [key for key in keys if key.startswith(_COMMANDS.get(command, ()))]:
        users = dict.fromkeys(next(text for start, text in _USERS.items() if key.startswith(start)) for key in wrong)
        raise UsageError(
            f"{', '.join(wrong)}: {command} cannot use {'it' if len(wrong) == 1 else 'them'}; {' and '.join(users)} can. "
            "Leave out what cannot be used"
        )
