"""Statistics over evaluated runs: intervals, comparisons, reliability, sanity tests."""
