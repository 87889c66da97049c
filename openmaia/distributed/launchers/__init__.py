"""Prepares, checks and submits the job of a config to SLURM, to KubeRay or to an existing Ray cluster."""
