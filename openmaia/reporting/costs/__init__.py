"""Predicts the duration and costs of a sweep, from the records of a run or from given service times."""
