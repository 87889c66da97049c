"""The CPU stand-in for a diffusion model: pictures put together from cut-outs, photographs, patterns and colours.

It is a collage and is called one everywhere; it draws what it has parts for, and says which words it could not draw.
"""

from openmaia.generators.collage.host import CollageEditor, CollageGenerator

__all__ = ["CollageEditor", "CollageGenerator"]
