"""Networks whose units are read through forward hooks, and units computed from the pixels."""
