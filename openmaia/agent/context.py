"""The inputs of an investigation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openmaia.agent.contrasts import Contrasts
from openmaia.agent.sandbox import SandboxLimits
from openmaia.agent.tasks.task import Task
from openmaia.agent.vocabulary import Vocabulary
from openmaia.core.services import Effects, Services
from openmaia.core.units import Scope, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationOptions:
    """The settings of an investigation. Their defaults are those of the config."""

    config: dict[str, Any]
    """The resolved config, for the record."""
    backbone: str
    """The name of the backbone, for the record."""
    run_seed: int
    soft_turns: int
    """Turns after which the agent is asked for its answer, which then needs less evidence (see `StoppingRule`)."""
    turns: int
    minutes: float
    """Limit of the time in services and experiments, without waiting times."""
    wall_minutes: float
    """Limit of the elapsed time, with waiting times; 0: none."""
    tokens: int
    """Limit of the tokens of all turns, of prompts and replies."""
    budget: float
    """Limit of the cost in US dollars; 0: none."""
    reply_tokens: int
    outage_minutes: float
    """How long an unavailable service is waited for."""
    images_per_call: int
    held_mb: int
    """Limit of the memory of all images, masks and recorded calls, in MiB."""
    sandbox: SandboxLimits
    allow_none: bool
    """Whether the agent's code may run unconfined if this machine has no sandbox."""
    user_tools: Mapping[str, Callable[..., Any]]
    evidence: Mapping[str, int | None]
    """Values that replace fields of the stopping rule of the task; None keeps the value."""
    sees_images: bool = True
    """Whether the backbone takes images. If not, it gets the viewer's descriptions."""
    states: bool = False
    """Whether the agent reads the states of its hypotheses."""
    vocabulary: Vocabulary | None = None
    """None: the generator draws anything."""
    preprocessing: str = ""
    """See `TargetInfo.preprocessing`; for the record."""
    without: tuple[str, ...] = ()
    """Tools that are withheld from the agent."""
    shown: int = 0
    """Images of the bank that the agent sees at the beginning."""
    words: int = 0
    """Words of its prompts that the agent gets as its first hypotheses."""
    shared: int = 0
    """Images that are kept of the investigation for others, at most."""
    looks_up: bool = False
    """Whether the agent may look up those of others."""
    effects: Effects | None = None
    """None: the agent cannot ask what units do to the classes."""
    contrasts: Contrasts | None = None
    """None: the backbone writes them."""

    def has_effects(self, unit: Unit) -> bool:
        """Returns whether the agent that studies a unit can ask what units do to the classes."""
        return self.effects is not None and (unit.scope is Scope.NETWORK or unit.layer in self.effects.layers)

    def time_limits(self, work: float, elapsed: float) -> list[str]:
        """Returns the limits, such as "limits.minutes=30", that were reached after `work` seconds in services and
        experiments and `elapsed` seconds by the clock.
        """
        limits = {"minutes": (self.minutes, work), "wall_minutes": (self.wall_minutes or float("inf"), elapsed)}
        return [f"limits.{name}={limit:g}" for name, (limit, taken) in limits.items() if taken >= limit * 60]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationContext:
    """The inputs of one investigation."""

    unit: Unit
    """Stands for the whole layer or network if the task is about one."""
    task: Task
    services: Services
    options: InvestigationOptions
    run_seed: int
    """Differs between replicates, unlike `options.run_seed`, from which it is derived."""
