"""Applications: tests of claimed biases, and removal of spurious features."""
