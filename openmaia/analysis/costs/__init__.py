"""Sums what investigations cost, and bounds the duration and costs of a sweep from below."""
