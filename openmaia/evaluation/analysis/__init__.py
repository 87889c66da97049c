"""Statistics over evaluated runs: intervals, verdicts, comparisons of runs, reliability, sanity tests of metrics."""
