"""Units computed from the pixels by formulas and by a network of their own, so that what they respond to is known.

Their detectors serve nowhere else: not in the experimenter's eyes, not in its vocabulary, not in the evaluation.
"""

from openmaia.targets.closed_form.classifying import ClosedFormClasses
from openmaia.targets.closed_form.target import ClosedFormTarget, layers

__all__ = ["ClosedFormClasses", "ClosedFormTarget", "layers"]
