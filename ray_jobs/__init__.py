"""Entry points for `ray job submit` and for the launchers of cluster/: the commands, with the arguments that they have."""

import sys


def on_the_cluster(command: str) -> None:
    """A command that takes a config. The job's driver joins the cluster that it was submitted to, unless it is told
    otherwise."""
    from openmaia import cli
    from openmaia.config import load_sweeps
    from openmaia.errors import UsageError
    from openmaia.submit.checking import absolute

    given = sys.argv[1:]
    if given and "--help" not in given:
        try:
            for config in load_sweeps(given):
                absolute(config)
        except UsageError as error:
            print(f"error: {error.message}", file=sys.stderr)
            raise SystemExit(2) from error
    sys.argv = ["openmaia", command, "ray.address=auto", *given]
    cli.main()


def on_finished_runs(command: str) -> None:
    """A command that takes run directories."""
    from openmaia import cli

    sys.argv = ["openmaia", command, *sys.argv[1:]]
    cli.main()
