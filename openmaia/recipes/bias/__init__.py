"""Tests an agent's claims that a context, such as snow, changes a classifier's score of a class, and collects the
errors that this causes.
"""
