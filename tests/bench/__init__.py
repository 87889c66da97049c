"""Benchmarks: started by hand with `make bench`, at smoke scale by the tests. Figures go to RESULTS.md, with the machine."""
