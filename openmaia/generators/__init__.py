"""Makers and editors of images."""
