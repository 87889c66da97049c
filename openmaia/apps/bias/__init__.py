"""Tests an agent's claims that a context, such as snow, biases a classifier, and collects the errors that it causes.

The tests use pairs of generated images that differ only in the context.
"""
