"""Targets, the networks under study: networks that are read through forward hooks, and synthetic units."""
