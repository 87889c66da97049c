"""Whether the GPUs that a config wants are there."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmaia.doctor.finding import Finding, missing, note, ok
from openmaia.schema import POOLS, Config, PoolConfig

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """GPUs that each of several actors holds for itself."""

    name: str
    count: int
    share: float


def claims(config: Config) -> list[Claim]:
    """Of the pools, which hold their share all the time; exemplars are computed before there are any."""
    pools: dict[str, PoolConfig] = {role: getattr(config.pools, role) for role in POOLS}
    found = [Claim(name=role, count=pool.replicas, share=pool.num_gpus) for role, pool in pools.items()]
    return [claim for claim in found if claim.share]


def places(config: Config, nodes: Sequence[int] | None) -> list[Finding]:
    """nodes: GPUs of each machine; None where that is not known."""
    claimed = claims(config)
    for claim in claimed:
        if claim.share > 1 and claim.share != int(claim.share):
            said = f"pools.{claim.name}.num_gpus={claim.share:g}: above 1 Ray gives whole GPUs only"
            return [missing(said, f"pools.{claim.name}.num_gpus={int(claim.share) + 1}")]
    if not claimed or nodes is None:
        return []
    where = "this machine" if config.ray.address == "local" else f"the cluster at {config.ray.address}"
    total = sum(claim.count * claim.share for claim in claimed)
    listed = ", ".join(f"{claim.name} {claim.count} x {claim.share:g}" for claim in claimed)
    wanted = f"{total:g} GPUs are wanted ({listed})"
    if not sum(nodes):
        remedy = "run it where there are GPUs, or pools.….num_gpus=0 with models that a CPU can run"
        return [note(f"{wanted}, and {where} has none: on its CPUs this config does not run", remedy)]
    said = f"{wanted}, {where} has {sum(nodes)}"
    if total > sum(nodes) + ROUNDING:
        return [missing(f"{said}: the run would wait for ever", "smaller pools.….num_gpus, or fewer pools.….replicas")]
    if not fit([claim.share for claim in claimed for _ in range(claim.count)], nodes):
        what = f"{said}, but no card takes what is left over: the run would wait for ever"
        return [missing(what, "pools.….num_gpus that add up to whole cards")]
    return [ok(said)]


def fit(shares: Sequence[float], nodes: Sequence[int]) -> bool:
    """Largest first, each where least room is left beside it. Whole GPUs of one actor are those of one machine."""
    left = [[1.0] * count for count in nodes]
    for share in sorted(shares, reverse=True):
        if share > 1:
            able = [cards for cards in left if cards.count(1.0) >= share]
            if not able:
                return False
            tightest = min(able, key=lambda cards: cards.count(1.0))
            for _ in range(int(share)):
                tightest[tightest.index(1.0)] = 0.0
            continue
        spots = [(room, cards) for cards in left for room in cards if room >= share - ROUNDING]
        if not spots:
            return False
        room, cards = min(spots, key=lambda spot: spot[0])
        cards[cards.index(room)] = room - share
    return True
