"""Shows a run in Weights & Biases (W&B). All data are also in the run directory; W&B only displays them."""

from openmaia.reporting.tracking.tracker import Tracker, start

__all__ = ["Tracker", "start"]
