"""The loop: ask the backbone, run its experiment, show it the outcome, until it answers."""

from openmaia.agent.loop import investigate
from openmaia.agent.options import Options

__all__ = ["Options", "investigate"]
