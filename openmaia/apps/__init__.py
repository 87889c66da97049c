"""Applications of agents' answers about units: tests of biases that agents claim, and removal of spurious features."""
