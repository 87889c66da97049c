"""Data types for the inputs of an investigation: its unit, its task, its services and its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openmaia.agent.contrasts import Contrasts
from openmaia.agent.sandbox import SandboxLimits
from openmaia.agent.tasks.task import Task
from openmaia.agent.vocabulary import Vocabulary
from openmaia.core.services import Services
from openmaia.core.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationOptions:
    """The settings of an investigation (see `InvestigationContext`). The config schema defines their defaults."""

    config: dict[str, Any]
    """The resolved config, which is stored in the record."""
    backbone: str
    """The name of the backbone, the model that plays the agent, in the record."""
    run_seed: int
    """The seed of the run, from which the seed of each investigation is derived."""
    soft_turns: int
    """Number of turns after which the agent is asked for its answer. From then on, an answer needs less evidence (see
    `StoppingRule`)."""
    turns: int
    """Largest number of turns."""
    minutes: float
    """Limit of the time in services (the models) and experiments, their calls included, without waiting times."""
    wall_minutes: float
    """Limit of the elapsed time, with waiting times. 0 means no limit."""
    tokens: int
    """Limit of the tokens of all turns: those of the prompts and those that the backbone generates."""
    reply_tokens: int
    """Limit of the tokens that the backbone generates for one reply."""
    outage_minutes: float
    """Longest time for which the investigation waits while the server of the backbone is unavailable."""
    images_per_call: int
    """Largest number of images in one call of a tool."""
    held_mb: int
    """Limit of the memory of all images, masks and recorded calls of the investigation, in MiB."""
    sandbox: SandboxLimits
    """The limits of the sandbox in which the agent's code runs."""
    allow_none: bool
    """Whether the agent's code may run without a sandbox if this machine does not support one."""
    user_tools: Mapping[str, Callable[..., Any]]
    """Tools that the user added to those of the agent, by name."""
    evidence: Mapping[str, int | None]
    """Values that replace fields of the task's stopping rule, by field name. None keeps the value of the task."""
    sees_images: bool = True
    """Whether the backbone can process images. If not, it gets descriptions in words, which another model (the viewer)
    writes."""
    vocabulary: Vocabulary | None = None
    """The words that the generator can draw. None: it draws anything."""
    preprocessing: str = ""
    """What is done to an image before the network receives it, in words (see `TargetInfo.preprocessing`). It is stored
    in the record."""
    without: tuple[str, ...] = ()
    """Names of tools that are withheld from the agent."""
    contrasts: Contrasts | None = None
    """Finds the near misses with which an answer is tested (see `openmaia.agent.contrasts`). If None, the backbone
    writes them."""

    def time_limits(self, work: float, elapsed: float) -> list[str]:
        """Returns which time limits the investigation has reached, each as a text such as "limits.minutes=30".

        Args:
            work: Seconds that services and experiments have taken, without waiting times.
            elapsed: Seconds by the clock, with waiting times.
        """
        limits = {"minutes": (self.minutes, work), "wall_minutes": (self.wall_minutes or float("inf"), elapsed)}
        return [f"limits.{name}={limit:g}" for name, (limit, taken) in limits.items() if taken >= limit * 60]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationContext:
    """The inputs of one investigation, which is the work of one agent on one unit, layer or network."""

    unit: Unit
    """The unit under study. For some tasks, it stands for a whole layer or network."""
    task: Task
    """The question, the prompts and the stopping rule."""
    services: Services
    """The network under study, the exemplars of its units, and the other models."""
    options: InvestigationOptions
    run_seed: int
    """The seed of this investigation. Replicates (repeated investigations of one unit) have different seeds, which are
    derived from `options.run_seed`."""
