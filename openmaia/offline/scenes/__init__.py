"""Drawn scenes: a generator, an editor and pictures that know what they show."""
