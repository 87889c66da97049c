"""Presents runs: the experiment browser, figures, costs, and Weights & Biases."""
