"""Kills parts of running sweeps at random moments: `make faults`."""
