"""The loop of an investigation."""
