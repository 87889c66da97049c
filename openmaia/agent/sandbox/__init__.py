"""Runs the agent's code in a confined process. See `sandbox.py` for what is protected and what is not."""

from openmaia.agent.sandbox.contract import CallHandler, OutOfTime, SandboxLevel, SandboxLimits, SandboxResult, Status
from openmaia.agent.sandbox.frames import Json
from openmaia.agent.sandbox.sandbox import Sandbox

__all__ = ["CallHandler", "Json", "OutOfTime", "Sandbox", "SandboxLevel", "SandboxLimits", "SandboxResult", "Status"]
