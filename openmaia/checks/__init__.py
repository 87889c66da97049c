"""What is looked at before a run starts: one list, for `run`, `submit` and `doctor`."""
