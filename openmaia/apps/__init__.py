"""Applications of what agents say about units (neurons): tests of claimed biases, and removal of spurious features."""
