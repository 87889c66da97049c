"""Judges, and scores of how activations predict what they see."""
