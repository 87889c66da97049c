"""Evaluates descriptions of units without a language model, by rules over the offline vocabulary.

The rules write test prompts, judge whether images show a label, and extract the terms of texts.
"""
