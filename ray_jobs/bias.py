"""`ray job submit --working-dir . -- python -m ray_jobs.bias CONFIG… [key=value…]`: the arguments of `openmaia bias`."""

from ray_jobs import on_the_cluster

if __name__ == "__main__":
    on_the_cluster("bias")
