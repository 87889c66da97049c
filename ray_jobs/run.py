"""`ray job submit --working-dir . -- python -m ray_jobs.run CONFIG… [key=value…]`: the arguments of `openmaia run`."""

import sys

from openmaia import cli


def main() -> None:
    # The job's driver joins the cluster that it was submitted to, unless it is told otherwise.
    sys.argv = ["openmaia", "run", "ray.address=auto", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
