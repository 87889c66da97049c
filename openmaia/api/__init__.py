"""The Python API: investigate one unit, run a sweep, read a run, and experiment by hand. `import openmaia` offers it."""
