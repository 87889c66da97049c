"""A real language model plays the agent: `make agent`."""
