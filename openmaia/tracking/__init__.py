"""A run as others can watch it, in Weights & Biases. A view only: the run directory is the truth."""

from openmaia.tracking.tracker import Tracker, start

__all__ = ["Tracker", "start"]
