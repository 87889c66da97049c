"""Figures and tables of the MAIA papers (MAIA, arXiv 2404.14394, and OpenMAIA) with our and their numbers."""
