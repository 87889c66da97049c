"""Entry points for `ray job submit` and for the launchers of cluster/: the commands, with the arguments that they have."""

import sys


def on_the_cluster(command: str) -> None:
    """A command that takes a config. The job's driver joins the cluster that it was submitted to, unless it is told of
    another; a Ray of its own, as laptops want it, would leave the job's nodes unused."""
    from openmaia import cli
    from openmaia.config import load_sweeps
    from openmaia.errors import UsageError
    from openmaia.submit.checking import absolute

    given = sys.argv[1:]
    where = ["ray.address=auto"]
    if given and "--help" not in given:
        try:
            configs = load_sweeps(given)
            for config in configs:
                absolute(config)
            if configs[0].ray.address != "local":
                where = []
        except UsageError as error:
            print(f"error: {error.message}", file=sys.stderr)
            raise SystemExit(2) from error
    sys.argv = ["openmaia", command, *given, *where]
    cli.main()


def on_finished_runs(command: str) -> None:
    """A command that takes run directories."""
    from openmaia import cli

    sys.argv = ["openmaia", command, *sys.argv[1:]]
    cli.main()
