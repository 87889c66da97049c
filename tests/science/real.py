"""The scripted experimenter on EfficientNet-Lite0: what its descriptions predict, beside baselines on equal terms."""

from dataclasses import dataclass
from statistics import mean
from typing import Any

from openmaia.core.selection import select
from openmaia.core.units import Unit
from tests.science import evaluated, setting
from tests.science.baselines import BASELINES
from tests.science.investigated import Job, investigated, means

CONFIG = "demo"
LAYERS = {"_blocks.2": 24, "_blocks.10": 38, "_conv_head": 38}
"""Units of each layer, drawn by a hash of the weights; the first layer has no more."""

OWN = "scripted experimenter"


def measure(smoke: bool) -> dict[str, Any]:
    given = overrides(smoke)
    wanted = list(select(setting.config(CONFIG, given).units, setting.services(CONFIG, given).target.info()).units)
    setting.ready(setting.config(CONFIG, given), list(LAYERS))
    found = setting.shared_out(investigated, [Job(config=CONFIG, overrides=given, unit=unit) for unit in wanted])
    budget = round(mean(one.images for one in found))
    named = ("exemplars only",) if smoke else tuple(BASELINES)
    said = setting.shared_out(
        labelled, [BaselineJob(overrides=given, unit=unit, names=named, budget=budget) for unit in wanted]
    )
    labels: dict[str, dict[Unit, tuple[str, ...]]] = {OWN: {one.unit: one.labels for one in found}}
    labels |= {name: {unit: one[name] for unit, one in zip(wanted, said, strict=True)} for name in named}
    scores = {name: evaluated.evaluated(CONFIG, given, one, 2 if smoke else 10) for name, one in labels.items()}
    against = {name: evaluated.paired(scores[OWN], scores[name]) for name in named}
    return evaluated.figures(scores[OWN]) | {
        "units": len(wanted),
        "abstained": sum(not one.labels for one in found),
        "baselines": {name: evaluated.figures(scores[name])["auc"] for name in named},
        "baselines_difference": {name: evaluated.figures(scores[name])["difference"] for name in named},
        "difference_to_baselines": against,
        "images": budget,
        "cpu_s_per_unit": round(mean(one.seconds for one in found), 2),
    }


def overrides(smoke: bool) -> tuple[str, ...]:
    units = ":".join(f"{layer}=random:{1 if smoke else count}" for layer, count in LAYERS.items())
    return (*setting.few(smoke), f"units={units}", f"exemplars.dataset={'few' if smoke else 'packages'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineJob:
    overrides: tuple[str, ...]
    unit: Unit
    names: tuple[str, ...]
    budget: int


def labelled(job: BaselineJob) -> dict[str, tuple[str, ...]]:
    own = means(CONFIG, job.overrides)
    return {name: BASELINES[name](job.unit, own, job.budget).labels for name in job.names}
