"""Runs a command of openmaia inside a job: `python -m ray_jobs run CONFIG... [key=value...]`.

If the config has `ray.address=local`, the driver joins the cluster of the job instead of starting a new one on its
node, which would leave the other nodes of the job unused.
"""

import sys

TAKES_CONFIG = ("run", "exemplars", "bias", "spurious")
"""Commands that take a config and use the cluster."""

TAKES_RUNS = ("evaluate", "report")
"""Commands that take run directories."""


def main(arguments: list[str]) -> None:
    """Runs a command of openmaia. Exits with code 2 if the command is not meant for jobs.

    Args:
        arguments: The name of the command (one of TAKES_CONFIG and TAKES_RUNS) and its arguments.
    """
    from openmaia.cli import main as cli

    command, *given = arguments or [""]
    if command not in (*TAKES_CONFIG, *TAKES_RUNS):
        known = ", ".join((*TAKES_CONFIG, *TAKES_RUNS))
        print(f"error: python -m ray_jobs {command!r}: expected one of {known}", file=sys.stderr)
        raise SystemExit(2)
    where = cluster_override(given) if command in TAKES_CONFIG and given and "--help" not in given else []
    sys.argv = ["openmaia", command, *given, *where]
    cli.main()


def cluster_override(sources: list[str]) -> list[str]:
    """Returns the config override that makes this process, the driver of the job, join the cluster of the job.

    Exits with code 2 if a config is invalid, or if its `paths.runs` or `paths.exemplars` is relative.

    Args:
        sources: The config files and overrides of the command.

    Returns:
        A list with the override. It is empty if `ray.address` in the config names a cluster already.
    """
    from openmaia.config.loading import load_sweeps
    from openmaia.core.errors import UsageError
    from openmaia.distributed.launchers.checking import absolute

    try:
        configs = load_sweeps(sources)
        for config in configs:
            absolute(config)
    except UsageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(2) from error
    return ["ray.address=auto"] if configs[0].ray.address == "local" else []


if __name__ == "__main__":
    main(sys.argv[1:])
