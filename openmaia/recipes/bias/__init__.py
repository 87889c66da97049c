"""Tests an agent's claims that a context, such as snow, changes a classifier's score of a class, and collects the
errors that this causes.

The tests use pairs of generated images that differ only in the context. A failure mode is a kind of error that a
supported bias causes.
"""
