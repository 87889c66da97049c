"""Runs the agent's code in a confined process. See `sandbox.py` for what that covers and what it does not."""

from openmaia.sandbox.contract import Level, Limits, Outcome, Serve, Status
from openmaia.sandbox.frames import Json
from openmaia.sandbox.sandbox import Sandbox

__all__ = ["Json", "Level", "Limits", "Outcome", "Sandbox", "Serve", "Status"]
