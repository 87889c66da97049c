"""Whether the GPUs that a config wants are there."""

from collections.abc import Sequence

from openmaia.doctor.finding import Finding, missing, note, ok
from openmaia.remote.wish import ROUNDING, Node, of_pools, unplaced
from openmaia.schema import Config


def places(config: Config, nodes: Sequence[int] | None) -> list[Finding]:
    """nodes: GPUs of each machine; None where that is not known."""
    claimed = [claim for claim in of_pools(config) if claim.gpus]
    for claim in claimed:
        if claim.gpus > 1 and claim.gpus != int(claim.gpus):
            said = f"pools.{claim.name}.num_gpus={claim.gpus:g}: above 1 Ray gives whole GPUs only"
            return [missing(said, f"pools.{claim.name}.num_gpus={int(claim.gpus) + 1}")]
    if not claimed or nodes is None:
        return []
    where = "this machine" if config.ray.address == "local" else f"the cluster at {config.ray.address}"
    total = sum(claim.count * claim.gpus for claim in claimed)
    listed = ", ".join(f"{claim.name} {claim.count} x {claim.gpus:g}" for claim in claimed)
    wanted = f"{total:g} GPUs are wanted ({listed})"
    if not sum(nodes):
        remedy = "run it where there are GPUs, or pools.….num_gpus=0 with models that a CPU can run"
        return [note(f"{wanted}, and {where} has none: on its CPUs this config does not run", remedy)]
    said = f"{wanted}, {where} has {sum(nodes)}"
    if total > sum(nodes) + ROUNDING:
        return [missing(f"{said}: the run would wait for ever", "smaller pools.….num_gpus, or fewer pools.….replicas")]
    if unplaced(claimed, [Node(gpus=count) for count in nodes]):
        what = f"{said}, but no card takes what is left over: the run would wait for ever"
        return [missing(what, "pools.….num_gpus that add up to whole cards")]
    return [ok(said)]
