"""Biases of classifiers: what an agent claims is tested on matched pictures, and what stands leads to failure modes."""
