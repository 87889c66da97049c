"""Applications: an agent's answers turned into something to act on, and tested."""
