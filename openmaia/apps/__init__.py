"""Applications that use the descriptions of agents: tests of claimed biases, and removal of spurious features."""
