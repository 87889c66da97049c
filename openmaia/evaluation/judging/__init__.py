"""Judges, which decide whether an image shows what a label names, and detection scores based on their verdicts."""
