"""The loop: ask the backbone, run its experiment, show it the outcome, until it answers."""

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.loop import investigate

__all__ = ["InvestigationOptions", "investigate"]
