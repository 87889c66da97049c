"""Run directories: records of finished investigations, journals of running ones, the driver's lease, and progress."""
