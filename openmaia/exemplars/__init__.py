"""Computes and stores the exemplars of units."""
