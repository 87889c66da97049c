"""A generator and an editor without a model, which make collages of cut-outs, photographs, patterns and colours.

They draw the words of a prompt for which they have images or formulas, and report the words that they could not draw.
"""

from openmaia.offline.collage.host import CollageEditor, CollageGenerator

__all__ = ["CollageEditor", "CollageGenerator"]
