"""`openmaia submit`."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.commands.common import Config

if TYPE_CHECKING:
    from openmaia.schema import Config as Settings

submit = typer.Typer(
    help="A run as a job of SLURM, of KubeRay, or of a Ray cluster that is there.", no_args_is_help=True
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="print the job in place of submitting it")]


@submit.command()
def slurm(
    config: Config,
    option: Annotated[
        list[str] | None, typer.Option(help="an option of sbatch, such as --option=--partition=gpu")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """With sbatch, as large as the config's job section says."""
    from openmaia.config import load_sweeps
    from openmaia.submit import slurm

    settings = load_sweeps(config)
    job = slurm.prepare(settings, config, option or [])
    if dry_run:
        print(job)
        return
    number = slurm.submit(job)
    _say(f"SLURM job {number}", [*slurm.follow(number), *_show(settings)])


@submit.command()
def kuberay(
    config: Config,
    overlay: Annotated[
        list[str] | None, typer.Option(help="cpu, pools, autoscaling, kueue, head-recovery, or a folder of your own")
    ] = None,
    image: Annotated[str | None, typer.Option(help="such as registry.example.org/openmaia:0.1.0-gpu")] = None,
    namespace: Annotated[str, typer.Option(help="of Kubernetes; empty for kubectl's own")] = "",
    dry_run: DryRun = False,
) -> None:
    """With kubectl, as a RayJob with a cluster of its own."""
    from openmaia.config import load
    from openmaia.submit import kuberay

    job = kuberay.prepare(load(config), overlay or [], image, namespace)
    if dry_run:
        print(job)
        return
    name = kuberay.submit(job)
    _say(f"RayJob {name}", [*kuberay.follow(job), f"openmaia show {job.run}   # where the volume is mounted"])


@submit.command()
def ray(
    config: Config,
    address: Annotated[str | None, typer.Option(help="of the dashboard, such as http://127.0.0.1:8265")] = None,
    dry_run: DryRun = False,
) -> None:
    """To the Ray cluster that answers at an address, with this folder as the job's working directory."""
    from openmaia.config import load_sweeps
    from openmaia.submit import ray

    settings = load_sweeps(config)
    job = ray.prepare(settings, config, address)
    if dry_run:
        print(job)
        return
    number = ray.submit(job)
    _say(f"Ray job {number}", [*ray.follow(job, number), *_show(settings)])


def _show(configs: "Sequence[Settings]") -> list[str]:
    return [f"openmaia show {shlex.quote(f'{each.paths.runs}/{each.name}')}" for each in configs]


def _say(what: str, commands: list[str]) -> None:
    print(f"submitted: {what}", *(f"  {command}" for command in commands), sep="\n")
