"""`ray job submit --working-dir . -- python -m ray_jobs.run CONFIG… [key=value…]`: the arguments of `openmaia run`."""

import sys

from openmaia import cli
from openmaia.config import load_sweeps
from openmaia.errors import UsageError


def main() -> None:
    try:
        _refuse_relative(sys.argv[1:])
    except UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(2) from error
    # The job's driver joins the cluster that it was submitted to, unless it is told otherwise.
    sys.argv = ["openmaia", "run", "ray.address=auto", *sys.argv[1:]]
    cli.main()


def _refuse_relative(sources: list[str]) -> None:
    """A job runs in a copy of the working directory that is thrown away, and with it what is written there."""
    paths = load_sweeps(sources)[0].paths
    for key, path in (("runs", paths.runs), ("exemplars", paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            raise UsageError(
                f"paths.{key}={path!r} is relative, and a job's folder is temporary; give a path that every node sees, "
                f"such as paths.{key}=/shared/{path}, or a URL"
            )


if __name__ == "__main__":
    main()
