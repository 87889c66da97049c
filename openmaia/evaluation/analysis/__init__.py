"""Statistics over runs whose descriptions were tested: intervals, verdicts, comparisons, reliability, sanity tests."""
