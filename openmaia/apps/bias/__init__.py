"""Tests an agent's claims that a context, such as snow, biases a classifier, and collects the errors that this causes.

The tests use pairs of generated images that differ only in the context.
"""
