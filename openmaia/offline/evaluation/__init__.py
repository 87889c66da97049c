"""Evaluation without a language model: test prompts, a judge and terms of texts by rules of the offline vocabulary."""
