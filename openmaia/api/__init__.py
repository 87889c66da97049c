"""The Python API, which `import openmaia` offers.

With its functions, users let an agent investigate one unit, or many units on Ray (a sweep), read the results of a run,
and investigate a unit themselves in a notebook.
"""
