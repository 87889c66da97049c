"""Presents runs."""
