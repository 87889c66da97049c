"""Whether each replica fits into its share of a GPU, or into main memory."""

from collections.abc import Sequence

from openmaia.doctor.finding import GIB, Finding, missing, note, ok, spoken
from openmaia.doctor.gpus import Card
from openmaia.doctor.machine import memory
from openmaia.doctor.memory import WORKING, of_conversation, of_pipeline
from openmaia.doctor.weights import Weights
from openmaia.schema import POOLS, Config, PoolConfig


def _pool(config: Config, role: str) -> PoolConfig:
    return getattr(config.pools, role)


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
