"""Judges, which decide whether an image shows what a label names, and scores of how activations predict this."""
