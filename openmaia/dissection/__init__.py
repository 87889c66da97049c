"""Exemplars: which dataset pictures excite a unit, how much, and where."""
