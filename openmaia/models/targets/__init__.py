"""Targets: networks that are read through forward hooks, and synthetic units."""
