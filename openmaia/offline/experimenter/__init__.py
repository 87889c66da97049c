"""The scripted experimenter: a backbone without a language model that follows the same protocol as a language model.

It reads activations from the messages, and analyses images only with the module `eyes`. It reduces its hypotheses,
which are words of the closed vocabulary, by factorial screening, matched controls and edits, and then answers or
abstains. Its reply is a function of the messages, so that a repeated request gets the same reply.
"""

from openmaia.offline.experimenter.host import ScriptedBackbone

__all__ = ["ScriptedBackbone"]
