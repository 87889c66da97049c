"""How often the pooled interval covers the truth if all units share their neutral prompts, by simulation."""

from datetime import date

import numpy as np
from scipy import stats

from measure.science import sections
from openmaia.evaluation.analysis.bootstrap import ClusteredValues, estimate, pooled

UNITS, PROMPTS, SHARED = 100, 5, (5, 10, 30)
"""Units, positive prompts of each, and numbers of neutral prompts that all units share."""
EFFECT, UNIT, PROMPT, NOISE = 0.5, 0.5, 0.7, 0.7
"""Mean effect of a description, and the standard deviations of units, prompts and single images."""


SECTION = "Coverage of intervals"
TRIALS = 1000


def measure(smoke: bool) -> dict[str, float]:
    """Share of simulated runs whose 95 % interval of the mean AUC holds the truth, by the number of neutral prompts."""
    found = {str(shared): covered(shared, 2 if smoke else TRIALS) for shared in SHARED}
    if not smoke:
        sections.write(SECTION, section(found))
    return found


def section(found: dict[str, float]) -> str:
    rows = "\n".join(f"| {shared} | {share:.3f} |" for shared, share in found.items())
    return f"""By simulation, {date.today().isoformat()}, `make science only=coverage`: {TRIALS} runs of {UNITS} units with {PROMPTS} positive prompts each, which all share
their neutral prompts. Share of the runs whose 95 % interval of the mean AUC over units holds the truth; 1.96 standard errors of a share are at most 0.017.

| neutral prompts | coverage |
|---|---|
{rows}
"""


def covered(shared: int, trials: int) -> float:
    random = np.random.default_rng(0)
    truth = float(stats.norm.cdf(EFFECT / np.sqrt(UNIT**2 + 2 * PROMPT**2 + 2 * NOISE**2)))
    hits = 0
    for trial in range(trials):
        luck = random.normal(0, PROMPT, shared)
        names = [f"{trial} {at}" for at in range(shared)]
        estimates = []
        for unit in range(UNITS):
            positive = (
                random.normal(EFFECT, UNIT) + random.normal(0, PROMPT, PROMPTS) + random.normal(0, NOISE, PROMPTS)
            )
            own = ClusteredValues.of(positive, [f"{trial} {unit} {at}" for at in range(PROMPTS)])
            neutral = ClusteredValues.of(luck + random.normal(0, NOISE, shared), names)
            estimates.append(estimate("auc", f"{trial} {unit}", own, neutral, 400, trial))
        whole = pooled([each for each in estimates if each], trial)
        hits += whole.low <= truth <= whole.high
    return hits / trials
