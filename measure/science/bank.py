"""The bank on the real network: what the scripted experimenter says of the units of real.csv if the words of a bank take the place of
its screening, what it says after rounds, and what the bank says alone. Tested as `repeat` has tested its descriptions without a bank,
with the images of the same seed. Writes bank.csv, a row per unit and agent, and a section of RESULTS.md.

One process. A measurement that is stopped goes on where it was.
"""

import csv
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from measure.measuring import machine, shown
from measure.science import real, repeat, sections, setting
from measure.science.evaluated import RESAMPLES
from measure.science.investigated import images
from measure.science.real import CONFIG, LAYERS, OWN
from openmaia.agent.loop import investigate
from openmaia.agent.tasks.task import load as load_task
from openmaia.analysis.rounds import list_rounds
from openmaia.assembly import datasets, exemplars, investigations, targets
from openmaia.assembly.evaluation import design, in_process
from openmaia.config.schema import Config
from openmaia.core.services import Services
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts, write_summary
from openmaia.evaluation.run import evaluate_run, measure_together, untested_claims
from openmaia.runs.records import Record
from openmaia.runs.run import TRIALS, InvestigationId, Run

BANK = ("bank.images=2000", "bank.k=100", "bank.words=6")
"""About 30 images of each of the 107 words, which are drawn alone and in random pairs. Of each unit the 100 strongest and the 100
weakest count, so that a word's AUC depends on more of its images than with the default of 15."""
ROUNDS = ("task.evidence.rounds=3", "task.evidence.confirm=12")
"""Twelve pairs: an answer has up to three labels, of which the default of four pairs shows each once or twice."""
ALONE = (
    "without=[text2image,edit_images,dataset_exemplars]",
    *(f"task.evidence.{name}=0" for name in ("experiments", "labels", "confirm")),
)
"""As in configs/agents/bank-only.yaml."""
SEED = 101
"""The first seed of `repeat`, whose verdicts on today's descriptions are in repeat.csv."""

TODAY, WITH_BANK, WITH_ROUNDS, BANK_ONLY = "no bank", "bank", "bank and 3 rounds", "bank alone"
TODAY_IMAGES = 371
"""Per unit, by the section about a real network."""

CSV = Path(__file__).with_suffix(".csv")
SECTION = "The bank on the real network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an agent said of a unit, and the images that the unit was shown beyond exemplars and bank."""

    labels: tuple[str, ...]
    images: int
    """In experiments."""
    own_tests: int
    """By the tests of its answers."""


Answers = Mapping[Unit, Answer]


def measure(smoke: bool) -> dict[str, Any]:
    units = listed(1 if smoke else None)
    today = today_supported(units)
    figures: dict[str, Any] = {
        "units": len(units),
        "today": {"supported": proportion(list(today.values())), "images": TODAY_IMAGES},
        "agents": {},
    }
    found: dict[str, Answers] = {}
    runs: dict[str, Run] = {}
    # What is cheapest is whole first.
    for answers in (of_bank_alone, of_agent):
        some = answers(units, smoke)
        found |= some
        runs |= tested(runs, some, smoke)
        verdicts = {
            name: {each.unit: verdict for each, verdict in run_verdicts(run).items()} for name, run in runs.items()
        }
        figures["agents"] = {
            name: summarised(found[name], verdicts[name], today) | wrong_shares(run) for name, run in runs.items()
        }
        if not smoke:
            write_units(found, verdicts)
            sections.write(SECTION, section(figures))
    return figures


def listed(each: int | None) -> list[Unit]:
    """Returns the units of real.csv: all of them, or the first ones of each layer."""
    with real.CSV.open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == OWN]
    name = setting.config(CONFIG).target.name
    return [
        Unit(target=name, layer=layer, index=int(row["unit"]))
        for layer in LAYERS
        for row in [row for row in rows if row["layer"] == layer][:each]
    ]


# -- answers ---------------------------------------------------------------------------------------------------------


def of_bank_alone(units: Sequence[Unit], smoke: bool) -> dict[str, Answers]:
    answered = conducted(configured("alone", ALONE, smoke), units)
    return {BANK_ONLY: {unit: last for unit, (_, last) in answered.items()}}


def of_agent(units: Sequence[Unit], smoke: bool) -> dict[str, Answers]:
    """Returns the answers with a bank. Up to its first test, an investigation with rounds is that without."""
    answered = conducted(configured("rounds", ROUNDS, smoke), units)
    return {
        WITH_BANK: {unit: first for unit, (first, _) in answered.items()},
        WITH_ROUNDS: {unit: last for unit, (_, last) in answered.items()},
    }


def configured(name: str, extra: Sequence[str], smoke: bool) -> Config:
    few = ("bank.images=150", "bank.k=15") if smoke else ()
    return setting.config(CONFIG, (f"name=real-bank-{name}{'-few' if smoke else ''}", *BANK, *few, *extra))


def conducted(settings: Config, units: Sequence[Unit]) -> dict[Unit, tuple[Answer, Answer]]:
    """Conducts the investigations that are not done yet. Returns the first and the last answer about each unit.

    Answers are kept in a table. There are no records: to compress their images would take much of the time.
    """
    path = setting.CACHE / "science" / f"{settings.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = read_answers(path, units)
    left = [unit for unit in units if unit not in done]
    if left:
        services, task, options = opened(settings), load_task(settings.task.name), investigations.options(settings)
        with path.open("a", newline="") as out:
            table = csv.writer(out, lineterminator="\n")
            for unit in left:
                record = investigate(unit, task, services, options)
                done[unit] = first_answer(record), last_answer(record)
                cells = [[each.images, each.own_tests, "; ".join(each.labels)] for each in done[unit]]
                table.writerow([unit.layer, unit.index, *cells[0], *cells[1]])
                out.flush()
                say(f"{settings.name}: {unit}: {cells}")
    return done


def read_answers(path: Path, units: Sequence[Unit]) -> dict[Unit, tuple[Answer, Answer]]:
    rows: dict[tuple[str, int], list[str]] = {}
    if path.exists():
        with path.open() as file:
            rows = {(layer, int(index)): cells for layer, index, *cells in csv.reader(file)}

    def answer(images: str, own_tests: str, labels: str) -> Answer:
        return Answer(labels=tuple(filter(None, labels.split("; "))), images=int(images), own_tests=int(own_tests))

    found = {unit: cells for unit in units if (cells := rows.get((unit.layer, unit.index)))}
    return {unit: (answer(*cells[:3]), answer(*cells[3:])) for unit, cells in found.items()}


def opened(settings: Config) -> Services:
    """Loads the services of one process."""
    target, dataset = targets.target(settings), datasets.image_dataset(settings)
    store = exemplars.make(settings, list(LAYERS), target=target, dataset=dataset)
    found = investigations.services(settings, store, measured=target)
    bank = exemplars.bank(settings, found.generator, target, dataset, say)
    return replace(found, bank=bank, generator=setting.Remembering(found.generator))


def say(line: str) -> None:
    print(f"{time.process_time():.0f} s of CPU: {line}", file=sys.stderr)


def last_answer(record: Record) -> Answer:
    return Answer(
        labels=record.labels, images=images(record), own_tests=sum(len(test.samples) for test in record.tests)
    )


def first_answer(record: Record) -> Answer:
    """Returns the answer that would have stood without rounds, with the default test of an answer, which changes none."""
    rounds = list_rounds(record)
    labels = rounds[0].test.labels if rounds else record.labels
    until = replace(record, turns=record.turns[: rounds[0].turn]) if rounds else record
    pairs = max(load_task("description").rule.confirm, len(labels)) if labels else 0
    return Answer(labels=labels, images=images(until), own_tests=2 * pairs)


# -- tests -----------------------------------------------------------------------------------------------------------


def tested(before: Mapping[str, Run], found: Mapping[str, Answers], smoke: bool) -> dict[str, Run]:
    """Tests answers, or goes on with it, and returns the run of each agent. An answer that is equal to another agent's is
    not tested again.

    Args:
        before: The runs of agents whose answers are tested already. They have the tests of random words.
        found: The answers of further agents.
    """
    settings = {name: tests_config(name, smoke) for name in found}
    any_of_them = next(iter(settings.values()))
    claims = {
        name: {unit: each.labels for unit, each in answers.items() if each.labels} for name, answers in found.items()
    }
    runs = {name: repeat.stored(settings[name], claims[name], name) for name in found}
    services = in_process(any_of_them)
    services = replace(services, generator=setting.Remembering(services.generator))
    together = list(before.values())
    for name, run in runs.items():
        run.bind(services.target.info())
        copy_trials(together, run)
        together.append(run)
        measure_together(
            together,
            services,
            design(any_of_them),
            lambda done, total, name=name: say(f"{name}: {done} of {total} tested"),
        )
    for run in runs.values():
        evaluate_run(run, services, design(any_of_them))
        write_summary(run)
    return runs


def tests_config(name: str, smoke: bool) -> Config:
    """Returns the config of a test, which is that of `repeat`. It knows of no bank, as that one did not."""
    few = ("evaluate.n=5", "evaluate.looks=[]", "evaluate.random_words=4") if smoke else ()
    stored = (
        f"name=bank-{SEED}-{name.replace(' ', '-')}{'-few' if smoke else ''}",
        f"paths.runs={setting.CACHE}/science/runs",
    )
    return setting.config(CONFIG, (*stored, f"seed={SEED}", "evaluate.detect=0", *few))


def copy_trials(runs: Sequence[Run], run: Run) -> None:
    for claim in untested_claims(run):
        same = (other for other in runs if _labels(other, claim.investigation) == claim.labels)
        trials = (trial for other in same if (trial := other.artifact(TRIALS, claim.investigation)) is not None)
        if (trial := next(trials, None)) is not None:
            run.write_artifact(TRIALS, claim.investigation, trial)


def _labels(run: Run, investigation: InvestigationId) -> tuple[str, ...]:
    return tuple((run.summary(investigation) or {}).get("labels") or ())


# -- figures ---------------------------------------------------------------------------------------------------------


def today_supported(units: Sequence[Unit]) -> dict[Unit, bool]:
    """Returns which units have a description without a bank that the first set of images of `repeat` supports."""
    with repeat.CSV.open() as file:
        supported = {
            (row["layer"], int(row["unit"]))
            for row in csv.DictReader(file)
            if row["verdict"] == Verdict.SUPPORTED.value
        }
    return {unit: (unit.layer, unit.index) in supported for unit in units}


def summarised(answers: Answers, verdicts: Mapping[Unit, UnitVerdict], today: Mapping[Unit, bool]) -> dict[str, Any]:
    own = [unit in verdicts and verdicts[unit].verdict is Verdict.SUPPORTED for unit in today]
    shown_images = [answers[unit].images + answers[unit].own_tests for unit in today]
    return {
        "described": sum(bool(each.labels) for each in answers.values()),
        "verdicts": dict(Counter(each.verdict.value for each in verdicts.values())),
        "supported": proportion(own),
        "ratio": ratio(own, list(today.values())),
        "gained, lost": [
            sum(one and not other for one, other in zip(own, today.values(), strict=True)),
            sum(other and not one for one, other in zip(own, today.values(), strict=True)),
        ],
        "layers": {
            layer: [
                sum(hit for hit, unit in zip(own, today, strict=True) if unit.layer == layer),
                sum(hit for unit, hit in today.items() if unit.layer == layer),
            ]
            for layer in LAYERS
        },
        "images": round(fmean(shown_images), 1),
        "images_most": max(shown_images),
        "of experiments": round(fmean(answers[unit].images for unit in today), 1),
    }


def ratio(own: Sequence[bool], today: Sequence[bool]) -> list[float]:
    """Returns the ratio of two shares of the same units, with an interval in which units are resampled."""
    pairs = np.array([own, today], float)
    drawn = np.random.default_rng(0).integers(0, len(own), (RESAMPLES, len(own)))
    sums = pairs[:, drawn].sum(axis=2)
    resampled = sums[0] / np.maximum(sums[1], 1)
    whole = pairs[0].sum() / max(pairs[1].sum(), 1)
    return [round(float(each), 3) for each in (whole, *np.percentile(resampled, [2.5, 97.5]))]


def wrong_shares(run: Run) -> dict[str, list[float]]:
    return {
        name: [round(each, 4) for each in share]
        for name, share in supported_shares(run).items()
        if name in (SHUFFLED, RANDOM)
    }


def write_units(found: Mapping[str, Answers], verdicts: Mapping[str, Mapping[Unit, UnitVerdict]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("agent layer unit images own_tests tested_on verdict p q worst_low labels".split())
        for name, answers in found.items():
            for unit, each in sorted(answers.items()):
                verdict = verdicts[name].get(unit)
                cells = repeat.cells(verdict) if verdict else ("", "abstained", "", "", "")
                table.writerow(
                    [name, unit.layer, unit.index, each.images, each.own_tests, *cells, "; ".join(each.labels)]
                )


def section(figures: dict[str, Any]) -> str:
    today, agents = figures["today"], figures["agents"]
    own = agents[BANK_ONLY]["layers"]
    rows = [
        f"| {TODAY} | 106 | {shown(today['supported'], '.1%')} | "
        + " | ".join(f"{own[layer][1]}" for layer in LAYERS)
        + f" | 1 | | {TODAY_IMAGES} | | |",
        *(
            f"| {name} | {each['described']} | {shown(each['supported'], '.1%')} | "
            + " | ".join(f"{each['layers'][layer][0]}" for layer in LAYERS)
            + f" | {shown(each['ratio'], '.2f')} | {each['gained, lost'][0]}, {each['gained, lost'][1]} | {each['images']:.0f} (most: {each['images_most']}) | "
            + " | ".join(shown(each.get(given), ".1%") for given in (SHUFFLED, RANDOM))
            + " |"
            for name, each in agents.items()
        ),
    ]
    return f"""The {figures["units"]} units of the first section, {machine()}, {date.today().isoformat()}, `make science only=bank`. With a bank the scripted
experimenter tests at most eight hypotheses, the best words of the bank and words that top exemplars show, and has no screening. Sizes
were chosen before any result: {" ".join(f"`{each}`" for each in BANK)}, with rounds {" ".join(f"`{each}`" for each in ROUNDS)}. *Bank alone*: the bank's
best word, without exemplars and images of its own. Answers are tested by today's rule with the images of seed {SEED}, as those without a
bank were [below](#the-same-descriptions-with-other-images); abstentions count as not supported. Each unit and agent is in bank.csv.

| agent | described | supported, of all | {" | ".join(f"`{layer}`" for layer in LAYERS)} | times the share without a bank | units gained, lost | images per unit | descriptions given to other units that are supported | random words that are supported |
|---|---|---|{"---|" * len(LAYERS)}---|---|---|---|---|
{chr(10).join(rows)}

Images per unit are those that an agent had drawn and edited for it, with those of its own tests of its answers
(without a bank: those of experiments alone). The intervals of ratios are over units.
"""
