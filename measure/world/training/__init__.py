"""Draws labelled scenes, trains the packaged networks on them, and measures their accuracy on fresh ones."""
