"""Targets with known ground truth: synthetic units and classifiers whose activations are formulas over detectors.

A detector measures where an image shows a concept. Only this package uses these; the scripted agent and the evaluation
use others.
"""
