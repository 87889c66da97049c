"""Evaluates descriptions without a language model, by rules over the offline vocabulary."""
