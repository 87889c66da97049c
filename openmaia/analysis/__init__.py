"""Computes from the records of runs what reports show."""
