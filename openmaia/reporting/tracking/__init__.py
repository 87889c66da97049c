"""Shows a run in Weights & Biases (W&B), which is only a view."""

from openmaia.reporting.tracking.tracker import Tracker, start

__all__ = ["Tracker", "start"]
