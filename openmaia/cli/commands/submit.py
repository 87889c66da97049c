"""`openmaia submit`: a run as a job of a cluster."""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import ConfigSources, stoppable
from openmaia.cli.commands.help import Command, Group

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.core.checks import Check

submit = typer.Typer(
    cls=Group,
    help="Submits a run to SLURM, to Kubernetes, or to a Ray cluster.\n\n"
    "Example: openmaia submit slurm configs/demo.yaml paths.runs=/shared/runs paths.exemplars=/shared/exemplars --dry-run",
    no_args_is_help=True,
)

DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Print the job and do not submit it.")]


@submit.command(cls=Command)
@stoppable()
def slurm(
    config: ConfigSources,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of sbatch, such as --option=--partition=gpu.")
    ] = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Submits a job to SLURM with sbatch. The config's job section says how large it is.

    Example: openmaia submit slurm configs/demo.yaml paths.runs=/shared/runs paths.exemplars=/shared/exemplars
    --option=--partition=gpu
    """
    from openmaia.checks import job as checks
    from openmaia.config.loading import load_sweeps
    from openmaia.distributed.launchers import slurm

    settings = load_sweeps(config)
    _require("slurm", config, settings, checks.of_slurm(settings, config))
    job = slurm.prepare(settings, config, option or [])
    if dry_run:
        print(job)
        return
    number = slurm.submit(job)
    _print_job(f"SLURM job {number}", [*slurm.follow(number), *_show_commands(settings)])


@submit.command(cls=Command)
@stoppable()
def kuberay(
    config: ConfigSources,
    by_pool: Annotated[
        bool,
        typer.Option("--by-pool", help="A group of pods for each pool that needs GPUs, for cards of several kinds."),
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="The image, such as registry.example.org/openmaia:0.2.0-gpu.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="The Kubernetes namespace. Empty: that of kubectl.")] = "",
    dry_run: DryRunFlag = False,
) -> None:
    """Submits a RayJob with a Ray cluster of its own to Kubernetes, with kubectl.

    Example: openmaia submit kuberay configs/demo.yaml --dry-run
    """
    from openmaia.config.loading import load
    from openmaia.distributed.launchers import kuberay

    settings = load(config)
    _require("kuberay", config, [settings])
    job = kuberay.prepare(settings, image, namespace, by_pool=by_pool)
    if dry_run:
        print(job)
        return
    name = kuberay.submit(job)
    _print_job(
        f"RayJob {name}",
        [*kuberay.follow(job), f"openmaia show {shlex.quote(job.run)}   # where the volume is mounted"],
    )


@submit.command(cls=Command)
@stoppable()
def ray(
    config: ConfigSources,
    address: Annotated[str | None, typer.Option(help="The dashboard, such as http://127.0.0.1:8265.")] = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Submits a job to a running Ray cluster, with this folder as its working directory.

    Example: openmaia submit ray configs/demo.yaml paths.runs=/shared/runs paths.exemplars=/shared/exemplars
    --address http://127.0.0.1:8265
    """
    from openmaia.checks import job as checks
    from openmaia.config.loading import load_sweeps
    from openmaia.distributed.launchers import ray

    settings = load_sweeps(config)
    _require("ray", config, settings, checks.of_ray(settings, config))
    job = ray.prepare(settings, config, address)
    if dry_run:
        print(job)
        return
    number = ray.submit(job)
    _print_job(f"Ray job {number}", [*ray.follow(job, number), *_show_commands(settings)])


def _require(
    launcher: str, sources: Sequence[str], configs: "Sequence[Config]", checks: "Iterable[Check]" = ()
) -> None:
    """Checks the overrides among the sources, layers and units, and what is given, before the job is queued."""
    from openmaia.checks.named import units
    from openmaia.checks.stages import require
    from openmaia.config.loading import refuse_unused_by

    refuse_unused_by(f"openmaia submit {launcher}", sources)
    require((each for config in configs for each in units(config)), checks)


def _show_commands(configs: "Sequence[Config]") -> list[str]:
    from openmaia.runs.files import joined

    return [f"openmaia show {shlex.quote(joined(each.paths.runs, each.name))}" for each in configs]


def _print_job(name: str, commands: list[str]) -> None:
    print(f"submitted: {name}", *(f"  {command}" for command in commands), sep="\n")
