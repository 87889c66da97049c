"""The one place where this suite uses the evaluation: descriptions of many units, tested in processes of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure.science import setting
from openmaia.assembly import datasets
from openmaia.assembly.evaluation import evaluation_services
from openmaia.core.units import Unit
from openmaia.evaluation.analysis import bootstrap
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.summary import pool_scores
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation, compare_trials
from openmaia.evaluation.controls import prepare_reference
from openmaia.evaluation.metrics.auc import AUC
from openmaia.evaluation.protocol import run_trials
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.trials import Trial
from openmaia.exemplars.store import ExemplarStore

RESAMPLES = 2000
TOGETHER = 17
"""Claims that share one computation of the controls."""

AUCS = ("auc", "auc_other", "auc_minus_other")

Labels = Mapping[Unit, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    config: str
    overrides: tuple[str, ...]
    claims: tuple[Claim, ...]
    design: EvaluationDesign


def evaluated(name: str, overrides: tuple[str, ...], labels: Labels, n: int) -> list[Evaluation]:
    """In the order of the labels. n: positive images of each description, and as many neutral ones."""
    claims = [Claim(unit=unit, labels=tuple(said), description="; ".join(said)) for unit, said in labels.items()]
    design = EvaluationDesign(n=n, seed=setting.config(name, overrides).seed, random=n, detect=0)
    jobs = [
        Job(config=name, overrides=overrides, claims=tuple(claims[at : at + TOGETHER]), design=design)
        for at in range(0, len(claims), TOGETHER)
    ]
    trials = [trial for found in setting.shared_out(tried, jobs) for trial in found]
    return compare_trials(trials, design.sharing)


def tried(job: Job) -> list[Trial]:
    services = _services(job)
    reference = prepare_reference({claim.unit.layer for claim in job.claims}, services, job.design)
    return [run_trials([claim], services, job.design, reference)[0] for claim in job.claims]


def _services(job: Job) -> EvaluationServices:
    """Detection is left out: its judge would be the experimenter's eyes."""
    overrides = (*job.overrides, "evaluate.judge.kind=none", f"evaluate.pictures={job.design.random}")
    settings = setting.config(job.config, overrides)
    services = setting.services(job.config, job.overrides)
    store = ExemplarStore.at(settings.paths.exemplars, settings.target.name, settings.exemplars.dataset)
    dataset = datasets.image_dataset(settings)
    return evaluation_services(settings, services.generator, services.target, store=store, dataset=dataset)


def figures(found: Sequence[Evaluation]) -> dict[str, Any]:
    """The AUCs over the tested descriptions, and over all units with chance for the rest (`_all`), with their numbers.

    auc_minus_other: AUC on a description's own images minus AUC on other units'; intervals over prompts and units crossed.
    identification: how often an image of a description excites its own unit most among all units of the layer.
    """
    whole = pool_scores(found, RESAMPLES)
    return {
        "tested": whole.counts["auc"],
        "units": whole.counts["auc_all"],
        **{f"{name}{over}": rounded(whole.measures[f"{name}{over}"]) for name in AUCS for over in ("", "_all")},
        "identification": {
            "top1": rounded(whole.measures["top1"]),
            "top5": rounded(whole.measures["top5"]),
            "chance": round(whole.measures["chance"].mean, 6),
            "units": whole.counts["top1"],
        },
    }


def paired(one: Sequence[Evaluation], other: Sequence[Evaluation]) -> dict[str, Any]:
    """Mean difference of AUCs over the units for which both descriptions were tested, with its interval over units."""
    pairs = [(AUC.value(a), AUC.value(b)) for a, b in zip(one, other, strict=True)]
    differences = [a - b for a, b in pairs if a is not None and b is not None]
    return {"units": len(differences), "auc": rounded(bootstrap.mean_interval(differences, RESAMPLES))}


def rounded(interval: Interval) -> list[float | None]:
    """[mean, low, high]"""
    return [None if value is None else round(value, 4) for value in interval.as_list()]
