"""The Python API, which `import openmaia` offers."""
