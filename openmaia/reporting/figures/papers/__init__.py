"""Reproduces figures and tables of the MAIA papers (MAIA, arXiv 2404.14394, and OpenMAIA) with our and their numbers.

Published numbers are always labelled "paper:" and drawn hollow. None of our results is computed from them.
"""
