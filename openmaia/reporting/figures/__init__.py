"""Draws figures with matplotlib, and writes tables with pandas."""
