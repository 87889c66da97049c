"""Synthetic units. They respond to concepts that Grounding DINO detects, so that their true descriptions are known.

`units.py` and `rules.py` import neither torch nor transformers.
"""
