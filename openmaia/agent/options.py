"""Everything about an investigation that is not the unit, the task or a service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openmaia.sandbox import Limits as SandboxLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """config: resolved, for the record. backbone: its name in the record. user_tools: by name. evidence: what replaces
    parts of the task's stopping rule. without: instruments that the agent does not get."""

    config: dict[str, Any]
    backbone: str
    run_seed: int
    soft_turns: int
    turns: int
    minutes: float
    tokens: int
    reply_tokens: int
    images_per_call: int
    sandbox: SandboxLimits
    allow_none: bool
    user_tools: Mapping[str, Callable[..., Any]]
    evidence: Mapping[str, int | None]
    without: tuple[str, ...] = ()
