"""Runs a command of openmaia inside a job: `python -m ray_jobs run CONFIG... [key=value...]`."""

import sys

_TAKES_CONFIG = ("run", "exemplars", "study bias", "study spurious")
"""Commands that take a config and use the cluster."""

_TAKES_RUNS = ("evaluate", "report")
"""Commands that take run directories."""


def main(arguments: list[str]) -> None:
    """Runs a command of openmaia with its arguments. Exits with code 2 if the command is not meant for jobs."""
    from openmaia.cli import main as cli

    words = 2 if arguments[:1] == ["study"] else 1
    command, given = " ".join(arguments[:words]), arguments[words:]
    if command not in (*_TAKES_CONFIG, *_TAKES_RUNS):
        known = ", ".join((*_TAKES_CONFIG, *_TAKES_RUNS))
        print(f"error: python -m ray_jobs {command!r}: expected one of {known}", file=sys.stderr)
        raise SystemExit(2)
    where = find_cluster_override(given) if command in _TAKES_CONFIG and given and "--help" not in given else []
    sys.argv = ["openmaia", *arguments, *where]
    cli.main()


def find_cluster_override(sources: list[str]) -> list[str]:
    """Returns the override, if one is needed, with which the driver joins the cluster of the job.

    Exits with code 2 if a config is invalid, or if its `paths.runs` or `paths.exemplars` is relative.
    """
    from openmaia.checks.job import absolute
    from openmaia.checks.stages import require
    from openmaia.config.loading import load_sweeps
    from openmaia.core.errors import UsageError

    # A cluster of its own on the node of the driver would leave the other nodes of the job unused.
    try:
        configs = load_sweeps(sources)
        require(each for config in configs for each in absolute(config))
    except UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(2) from error
    return ["ray.address=auto"] if configs[0].ray.address == "local" else []


if __name__ == "__main__":
    main(sys.argv[1:])
