"""Runs the agent's code in a confined process. See `sandbox.py` for what is protected and what is not."""

from openmaia.agent.sandbox.contract import (
    CallHandler,
    ExperimentStopped,
    SandboxLevel,
    SandboxLimits,
    SandboxResult,
    Status,
)
from openmaia.agent.sandbox.frames import Json
from openmaia.agent.sandbox.sandbox import Sandbox

__all__ = [
    "CallHandler",
    "ExperimentStopped",
    "Json",
    "Sandbox",
    "SandboxLevel",
    "SandboxLimits",
    "SandboxResult",
    "Status",
]
