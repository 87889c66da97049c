"""A job that says how many GPUs its cluster has and ends with an exit code of its own;
OPENMAIA_JOB=tests.cluster.job_exits_with_3."""

import ray

ray.init(address="auto", log_to_driver=False)
print(f"{ray.cluster_resources().get('GPU', 0):g} GPUs")
raise SystemExit(3)
