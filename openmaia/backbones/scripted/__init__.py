"""The scripted experimenter: no language model, but the same protocol.

It reads activations out of the transcript, sees pictures through `eyes` alone, narrows hypotheses over the closed
vocabulary by factorial screening, matched controls and edits, and answers or abstains. Its reply is a function of the
messages: whoever repeats a request gets the same reply.
"""

from openmaia.backbones.scripted.host import ScriptedBackbone

__all__ = ["ScriptedBackbone"]
