"""Exemplars of a unit: dataset images with its highest, lowest and random activations, and their activation maps."""
