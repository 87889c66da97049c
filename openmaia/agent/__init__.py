"""The loop of an investigation, the work of one agent on one unit, layer or network.

In each turn, the backbone (the model that plays the agent) writes a reply. The experiment in the reply, a piece of
Python code, is run, and its output is sent to the backbone. The loop ends when the reply is an accepted answer, or at a
limit.
"""

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.loop import investigate

__all__ = ["InvestigationOptions", "investigate"]
