"""A generator and an editor without a model, which make collages of cut-outs, photographs, patterns and colours."""

from openmaia.offline.collage.host import CollageEditor, CollageGenerator

__all__ = ["CollageEditor", "CollageGenerator"]
