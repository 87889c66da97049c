"""The bank on a Ray cluster: drawn by the generator's pool, and measured as exemplars are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from openmaia.config.schema import Config
from openmaia.core.services import Generator
from openmaia.distributed.assembly import Assembly
from openmaia.distributed.exemplars import team
from openmaia.distributed.pools.kept import kept_or_own_pools
from openmaia.distributed.pools.run_pools import run_generators
from openmaia.exemplars.bank import MeasuredBank, keep_bank, measured_config
from openmaia.runs.purse import RunPurse


def make_bank(
    config: Config,
    assembly: Assembly,
    layers: Sequence[str],
    say: Callable[[str], None],
    progress: Callable[[str, int, int], None],
    purse: RunPurse | None = None,
) -> MeasuredBank | None:
    """Draws the bank of a config, and measures it on layers, unless that is kept. None: it has none.

    It needs the GPUs of the generator while it draws, and afterwards those of the target. Images that cost something are
    paid by `purse`.
    """

    @contextmanager
    def generator() -> Iterator[Generator]:
        caller = f"bank of {config.name}"
        with kept_or_own_pools([config], assembly, say, start=run_generators) as (made,):
            pools = replace(made, purse=purse)
            try:
                yield pools.generator(caller)
            finally:
                pools.leave(caller)

    bank = keep_bank(config, generator, lambda: assembly.dataset(config, say), say, partial(progress, "bank"))
    if bank is None:
        return None
    with team(measured_config(config, bank), assembly, say) as workers:
        return MeasuredBank.of(bank, workers.compute(layers, partial(progress, "measuring the bank")))
