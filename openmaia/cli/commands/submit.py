"""`openmaia submit`: a run as a job of a cluster."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import ConfigSources, stoppable
from openmaia.cli.commands.help import Command, Group

if TYPE_CHECKING:
    from openmaia.config.schema import Config

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
    from openmaia.config.loading import load_sweeps
    from openmaia.distributed.launchers import slurm

    settings = load_sweeps(config)
    _validate("slurm", config, settings)
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
    _validate("kuberay", config, [settings])
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
    from openmaia.config.loading import load_sweeps
    from openmaia.distributed.launchers import ray

    settings = load_sweeps(config)
    _validate("ray", config, settings)
    job = ray.prepare(settings, config, address)
    if dry_run:
        print(job)
        return
    number = ray.submit(job)
    _print_job(f"Ray job {number}", [*ray.follow(job, number), *_show_commands(settings)])


def _validate(launcher: str, sources: Sequence[str], configs: "Sequence[Config]") -> None:
    """Checks layers, units and overrides. Files are not checked: they may exist only on the nodes of the cluster."""
    from openmaia.assembly.validation import validate_units
    from openmaia.config.loading import refuse_unused_by

    refuse_unused_by(f"openmaia submit {launcher}", sources)
    for each in configs:
        validate_units(each)


def _show_commands(configs: "Sequence[Config]") -> list[str]:
    from openmaia.runs.files import joined

    return [f"openmaia show {shlex.quote(joined(each.paths.runs, each.name))}" for each in configs]


def _print_job(name: str, commands: list[str]) -> None:
    print(f"submitted: {name}", *(f"  {command}" for command in commands), sep="\n")
