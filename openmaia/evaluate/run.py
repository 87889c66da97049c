"""Evaluates what a run has found. Images are made once per description and shown to two units of its layer."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from openmaia.evaluate.predictive import Claim, Stimulus, is_drawn, partner, score, stimuli, to_parquet
from openmaia.evaluate.statistics import Interval, mean_interval
from openmaia.services import Generator, Target
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

Progress = Callable[[int, int], None]


def claims(run: Run) -> list[Claim]:
    return [
        Claim(
            unit=Unit(target=row["target"], layer=row["layer"], index=row["index"]),
            replicate=row["replicate"],
            labels=tuple(row["labels"]),
        )
        for row in run.headers()
    ]


def evaluate(
    run: Run,
    generator: Generator,
    target: Target,
    *,
    n: int,
    seed: int,
    at_once: int = 1,
    progress: Progress = lambda done, total: None,
) -> None:
    """Every record without an evaluation gets one. Finished evaluations are not repeated.

    at_once: units under way at once, so that pools get batches to fill. A model host in this process is no pool: it
    serves one call at a time, hence the default.
    """
    found = claims(run)
    evaluated = run.evaluated()
    owed = [c for c in found if Owed(unit=c.unit, replicate=c.replicate) not in evaluated]
    if not owed:
        return
    made = dict(zip(_keys(found), _made(found, generator, n, seed, at_once), strict=True))
    total = len(owed)

    def one(claim: Claim) -> None:
        others = [c for c in found if c.replicate == claim.replicate and is_drawn(made[c.unit, c.replicate])]
        other = partner(claim.unit, [c.unit for c in others])
        control = (other, made[other, claim.replicate]) if other else None
        scored = score(claim, made[claim.unit, claim.replicate], control, target)
        run.write_evaluation(Owed(unit=claim.unit, replicate=claim.replicate), to_parquet(scored))

    with ThreadPoolExecutor(at_once) as pool:
        for done, _ in enumerate(pool.map(one, owed), start=1):
            progress(done, total)


def differences(run: Run, resamples: int) -> Interval:
    """AUC on a description's own images minus AUC on another unit's, over all units that could be compared."""
    scores = run.scores().values()
    paired = [s["auc"] - s["auc_other"] for s in scores if s["auc_other"] is not None]
    return mean_interval(paired, resamples)


def _keys(found: Sequence[Claim]) -> list[tuple[Unit, int]]:
    return [(claim.unit, claim.replicate) for claim in found]


def _made(found: Sequence[Claim], generator: Generator, n: int, seed: int, at_once: int) -> list[tuple[Stimulus, ...]]:
    def one(claim: Claim) -> tuple[Stimulus, ...]:
        return stimuli(claim, generator, n, seed)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, found))
