"""Reads and writes the file formats of the published MAIA code and of other projects that describe units.

Imported files are untrusted data: they are read with size limits and never executed or unpickled.
"""
