"""The Ray cluster of a run: connecting to it, checking it, and reserving its resources."""
