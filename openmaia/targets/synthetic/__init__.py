"""Units with known truth: concepts that Grounding DINO finds and SAM outlines.

The lists (`units.py`) and the rules (`rules.py`) load neither torch nor transformers.
"""
