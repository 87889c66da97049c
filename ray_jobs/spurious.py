"""`ray job submit --working-dir . -- python -m ray_jobs.spurious CONFIG… [key=value…]`: the arguments of `openmaia spurious`."""

from ray_jobs import on_the_cluster

if __name__ == "__main__":
    on_the_cluster("spurious")
