"""`ray job submit --working-dir . -- python -m ray_jobs.evaluate RUN…`: the arguments of `openmaia evaluate`."""

from ray_jobs import on_finished_runs

if __name__ == "__main__":
    on_finished_runs("evaluate")
