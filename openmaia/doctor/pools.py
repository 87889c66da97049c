"""Whether the pools fit: onto the GPUs that there are, and each replica into its share of one."""

from collections.abc import Iterator, Sequence

from openmaia.doctor.finding import GIB, Finding, missing, note, ok, spoken
from openmaia.doctor.gpus import Card
from openmaia.doctor.machine import memory
from openmaia.doctor.memory import WORKING, of_conversation, of_pipeline
from openmaia.doctor.weights import Weights
from openmaia.schema import POOLS, Config, PoolConfig

ROUNDING = 1e-6


def shares(config: Config) -> list[tuple[str, float]]:
    """(pool, GPUs) of every replica. Models behind a server take none of these."""
    return [(role, pool.num_gpus) for role in POOLS for pool in [_pool(config, role)] for _ in range(pool.replicas)]


def _pool(config: Config, role: str) -> PoolConfig:
    return getattr(config.pools, role)


def places(config: Config, nodes: Sequence[int] | None) -> list[Finding]:
    """nodes: GPUs of each machine; None where that is not known."""
    wanted = shares(config)
    total = sum(share for _, share in wanted)
    findings = list(_odd(config))
    if not total or nodes is None:
        return findings
    where = "this machine" if config.ray.address == "local" else f"the cluster at {config.ray.address}"
    listed = ", ".join(
        f"{role} {_pool(config, role).replicas} x {_pool(config, role).num_gpus:g}"
        for role in POOLS
        if _pool(config, role).num_gpus
    )
    said = f"the pools want {total:g} GPUs ({listed}); {where} has {sum(nodes)}"
    if not sum(nodes):
        remedy = "run it where there are GPUs, or pools.….num_gpus=0 and models that a CPU can run"
        return [
            *findings,
            note(f"{where} has no GPU, and the pools want {total:g} ({listed}): it cannot run there", remedy),
        ]
    if total > sum(nodes) + ROUNDING:
        return [*findings, missing(said, "fewer pools.….replicas, or smaller pools.….num_gpus that add up to less")]
    if not _fits([share for _, share in wanted], nodes):
        return [*findings, missing(f"{said}, but parts of GPUs cannot be put together from several", "other parts")]
    return [*findings, ok(said)]


def _odd(config: Config) -> Iterator[Finding]:
    for role in POOLS:
        share = _pool(config, role).num_gpus
        if share > 1 and share != int(share):
            yield missing(f"pools.{role}.num_gpus={share:g}: above 1 Ray gives whole GPUs only", f"{int(share) + 1}")


def _fits(wanted: Sequence[float], nodes: Sequence[int]) -> bool:
    """Largest first, each into the fullest place that takes it; whole GPUs of one replica are on one machine."""
    left = [[1.0] * count for count in nodes]
    for share in sorted(wanted, reverse=True):
        if share > 1:
            free = [(sum(card == 1.0 for card in cards), cards) for cards in left]
            able = [cards for count, cards in sorted(free, key=lambda each: each[0]) if count >= share]
            if not able:
                return False
            for index in [i for i, card in enumerate(able[0]) if card == 1.0][: int(share)]:
                able[0][index] = 0.0
            continue
        spots = [
            (room, n, i) for n, cards in enumerate(left) for i, room in enumerate(cards) if room >= share - ROUNDING
        ]
        if not spots:
            return False
        _, node, index = min(spots)
        left[node][index] -= share
    return True


def fits(config: Config, looked: Sequence[Weights], cards: Sequence[Card]) -> list[Finding]:
    """Memory wanted per replica and had. cards: of this machine; empty where those of the run are not known."""
    findings: list[Finding] = []
    for role in POOLS:
        mine = [weights for weights in looked if weights.source.role == role]
        if not mine or not all(weights.parts for weights in mine):
            continue
        find = _language if role == "backbone" else _other
        findings.append(find(config, role, mine, cards))
    return findings


def _language(config: Config, role: str, mine: Sequence[Weights], cards: Sequence[Card]) -> Finding:
    engine, pool = config.backbone.vllm, config.pools.backbone
    weights = of_pipeline(mine, offload=False)
    tokens = config.backbone.context_tokens
    one = of_conversation(mine[0].settings, tokens)
    cache = f"{spoken(one)} a conversation of {tokens} tokens" if one else "its KV cache is not known"
    parallel = engine.tensor_parallel
    wanted = weights + one + WORKING * parallel
    said = f"pools.backbone: about {spoken(wanted)} wanted per replica (weights {spoken(weights)}, {cache})"
    if not pool.num_gpus:
        return _on_cpu(said, wanted)
    if not cards:
        return note(said)
    card = min(cards, key=lambda card: card.total)
    had = engine.memory_fraction * min(pool.num_gpus / parallel, 1.0) * card.total * parallel
    said += f"; {spoken(had)} had ({engine.memory_fraction:g} of {pool.num_gpus:g} x {card.name})"
    if wanted > had:
        return missing(
            said,
            "more of pools.backbone.num_gpus with backbone.vllm.tensor_parallel, fewer backbone.context_tokens, or "
            "backbone.vllm.quantization=fp8",
        )
    room = f"; room for about {int((had - weights - WORKING * parallel) / one)} full conversations" if one else ""
    return ok(said + room)


def _other(config: Config, role: str, mine: Sequence[Weights], cards: Sequence[Card]) -> Finding:
    pool = _pool(config, role)
    offload = role in ("generator", "editor") and getattr(config, role).diffusion.offload
    weights = of_pipeline(mine, offload)
    wanted = weights + WORKING
    said = f"pools.{role}: about {spoken(wanted)} wanted per replica (weights {spoken(weights)}, 2 GiB to work in)"
    if not pool.num_gpus:
        return _on_cpu(said, wanted)
    if not cards:
        return note(said)
    card = min(cards, key=lambda card: card.total)
    had = min(pool.num_gpus, 1.0) * card.total
    said += f"; {spoken(had)} had ({pool.num_gpus:g} x {card.name})"
    if wanted > had:
        smaller = f", {role}.diffusion.quantize=nf4 or {role}.diffusion.offload=true" if role != "target" else ""
        return missing(said, f"a larger pools.{role}.num_gpus{smaller}")
    return ok(said)


def _on_cpu(said: str, wanted: float) -> Finding:
    here = memory()
    said += f"; with num_gpus=0 in main memory, of which there is {here / GIB:.0f} GiB"
    if wanted > here:
        return missing(said, "pools.….num_gpus, as the files of configs/machine give, or a smaller model")
    return note(said)


def quantized(config: Config, gpus: bool) -> list[Finding]:
    """4-bit weights, which diffusers packs on a GPU only."""
    return [
        missing(f"{role}.diffusion.quantize=nf4 needs a GPU, and pools.{role}.num_gpus=0", f"pools.{role}.num_gpus=…")
        for role, service in (("generator", config.generator), ("editor", config.editor))
        if service.kind == "diffusers" and service.diffusion.quantize == "nf4"
        if not gpus and not _pool(config, role).num_gpus
    ]
