"""Bounds the duration and costs of a sweep from below, from the records of a run or from given service times."""
