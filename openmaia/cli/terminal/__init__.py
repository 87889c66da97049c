"""Prints progress, results and costs in the terminal."""
