"""Targets with known ground truth: synthetic units and classifiers whose activations are computed by formulas.

The formulas take the outputs of detectors. A detector measures where an image shows a concept, such as red, stripes or
a bird, by pixel statistics or by the outputs of a classification network. Only this package uses these detectors. The
scripted agent and the evaluation use others, such as `offline.experimenter.eyes`.
"""
