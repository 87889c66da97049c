"""Checks of a job, before it is submitted and, where nodes are concerned, once it has started."""

import os
from collections.abc import Iterator, Sequence
from functools import partial

from openmaia.checks import named
from openmaia.config.named import find_config
from openmaia.config.schema import Config
from openmaia.core.checks import Check, missing, refusals
from openmaia.core.secrets import is_clean
from openmaia.distributed.launchers import slurm
from openmaia.distributed.launchers.sizes import describe_size, list_nodes, require_room


def of_ray(configs: Sequence[Config], sources: Sequence[str]) -> Iterator[Check]:
    """Yields the checks of a job on a running Ray cluster. Files may be on its nodes only: they are not looked for."""
    yield from command_line(sources)
    for config in configs:
        yield from absolute(config)


def of_slurm(configs: Sequence[Config], sources: Sequence[str]) -> Iterator[Check]:
    """Yields the checks of a SLURM job, whose nodes share files with this machine, and its Python if no other is named."""
    yield from of_ray(configs, sources)
    job = configs[0].job
    yield from refusals(partial(require_room, configs, list_nodes(job), describe_size(job)))
    distributions = named.installed()
    for config in configs:
        yield from named.files(config)
        yield from named.folders(config)
        if slurm.uses_this_python(os.environ):
            for each in named.packages(config, distributions):
                yield missing(f"{each.message}. Another Python for the job: {slurm.PYTHON}=…")


def command_line(sources: Sequence[str]) -> Iterator[Check]:
    """Yields overrides that have a URL with a password or a query: the cluster stores and shows a job's command line."""
    for source in sources:
        if find_config(source) is None and not is_clean(source):
            key = source.partition("=")[0]
            yield missing(
                f"{key} has a URL with a password or a query, and the cluster stores and shows the command line of a job; put "
                f"it into a file, or into an environment variable of the job, and give '{key}=${{oc.env:NAME}}'"
            )


def absolute(config: Config) -> Iterator[Check]:
    """Yields relative paths of results: most of the folders in which a job's processes work are deleted when it ends."""
    for key, path in (("runs", config.paths.runs), ("exemplars", config.paths.exemplars)):
        if not path.startswith(("/", "~")) and "://" not in path:
            yield missing(
                f"paths.{key}={path!r} is relative, and a job's processes have folders of their own; give a path that every "
                f"node sees, such as paths.{key}=/shared/{path}, or a URL"
            )
