"""Studies that are written on the Python API."""
