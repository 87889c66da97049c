"""Run directories: records of finished investigations, journals of running ones, and a run's lease and progress."""
