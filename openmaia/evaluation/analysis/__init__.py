"""Statistics over evaluated runs."""
