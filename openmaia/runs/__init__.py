"""Run directories: records of finished investigations, journals of running ones, and the run's lease and progress."""
