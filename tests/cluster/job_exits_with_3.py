"""A job that ends with an exit code of its own; OPENMAIA_JOB=tests.cluster.job_exits_with_3."""

raise SystemExit(3)
