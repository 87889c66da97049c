"""The loop of an investigation."""

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.loop import investigate

__all__ = ["InvestigationOptions", "investigate"]
