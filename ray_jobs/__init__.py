"""The entry point of jobs on a Ray cluster, and programs that start Ray nodes inside a batch job."""
