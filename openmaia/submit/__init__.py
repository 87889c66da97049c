"""A config as a job of SLURM, of KubeRay, or of a Ray cluster that is there: checked, filled in, printed or submitted."""
