"""Drawn scenes: a generator, an editor and pictures that know what they show.

`truth.holds` and `render.masks` are for a judge of descriptions, which is planned.
"""
