"""The loop: ask the backbone, run its experiment, show it the outcome, until it answers."""

from openmaia.agent.loop import Options, investigate

__all__ = ["Options", "investigate"]
