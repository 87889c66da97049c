"""What a language model found out, unit by unit, and how true it is beside what simpler methods say of the same units."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

from measure.language_model.model import NAME
from measure.measuring import machine, shown
from measure.science import evaluated, setting
from measure.science.investigated import Job, images, investigated
from measure.science.real import BaselineJob, labelled
from openmaia.agent.evidence.experiments import count_measuring
from openmaia.agent.tasks.task import load as load_task
from openmaia.analysis.conduct import conduct
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.scores import score
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import Run

HERE = Path(__file__).parent
CONFIG = "efficientnet-lite0"
IMAGES = 10
"""Positive images of each description, and as many neutral ones."""
FEW = 10
"""With fewer tested descriptions nothing is said about a method."""
OWN = "language model"
WITHOUT = "language model, exemplars only"
SCRIPTED = "scripted experimenter"
BASELINE_NAMES = ("exemplars only", "random words")

# Of the shipped model.
NOTE = """The prompt and the loop were developed on the eight units of each layer that `random:` draws first. These are the eight that it
draws next, which nobody had looked at before.

Mended after this run, and not measured again: an agent that repeated itself and was asked for its answer got it sent back once
if no experiment had tested its labels; texts without spaces were not bounded by the grammar, so that two answers went on to the
limit of tokens; prompts such as "a red boat" counted as copied from the example.

The means of tested descriptions were computed afterwards from the stored figures; where a method was not tested on all units, its
AUC of other units' descriptions, intervals and pairs cannot be told from those."""

Labels = Mapping[Unit, tuple[str, ...]]


def write(runs: Path, names: Sequence[str], units: str, model: str) -> None:
    """Writes the figures of the runs beside this file.

    Args:
        runs: The folder of the runs.
        names: The run with experiments, and the one without.
        units: The selection of units.
        model: The name of the model.
    """
    agent, exemplars = (_records(runs / name) for name in names)
    both = {unit: record for unit, record in agent.items() if unit in exemplars}
    overrides = (f"units={units}", "exemplars.dataset=packages")
    labels, used = _labels(both, exemplars, overrides)
    scores = {
        name: dict(zip(own, evaluated.evaluated(CONFIG, overrides, own, IMAGES), strict=True))
        for name, own in labels.items()
    }
    figures = {
        "model": model,
        "machine": machine(),
        "date": date.today().isoformat(),
        "loop": _loop(list(agent.values())),
        "images": used,
        "truth": {name: evaluated.figures(list(own.values())) for name, own in scores.items()},
        "difference_to": {
            name: evaluated.paired(list(scores[OWN].values()), [scores[name][unit] for unit in scores[OWN]])
            for name in labels
            if name != OWN
        },
    }
    _write_figures(figures)
    _write_units(both, scores[OWN])


def write_ablation(variants: Mapping[str, Path]) -> None:
    """Adds the conduct in the runs of the ablation, by the names of the variants, to the figures that `write` wrote."""
    figures = json.loads((HERE / "results.json").read_text())
    read = {name: _records(folder) for name, folder in variants.items()}
    found = _ablated({name: records for name, records in read.items() if records})
    failed = {name: len(Run.open(str(folder)).failures()) for name, folder in variants.items()}
    _write_figures(figures | {"ablation": found, "failed": failed, "ablation_date": date.today().isoformat()})


def write_vllm(folder: Path) -> None:
    """Adds the conduct in a run with vLLM to the figures that `write` wrote."""
    figures = json.loads((HERE / "results.json").read_text())
    records = list(_records(folder).values())
    _write_figures(figures | {"vllm": _loop(records), "vllm_date": date.today().isoformat()})


def write_asking(asking: Mapping[str, Any]) -> None:
    """Adds what asking.py measured to the figures that `write` wrote."""
    figures = json.loads((HERE / "results.json").read_text())
    _write_figures(figures | {"asking": asking})


def asking_conditions() -> dict[str, str]:
    """Returns model, machine and date of the answers that are stored."""
    stored = json.loads((HERE / "results.json").read_text())["asking"]
    return {name: stored[name] for name in ("model", "machine", "date")}


def _write_figures(figures: Mapping[str, Any]) -> None:
    (HERE / "results.json").write_text(json.dumps(figures, indent=1, default=str) + "\n")
    (HERE / "RESULTS.md").write_text(_report(figures))


def _records(folder: Path) -> dict[Unit, Record]:
    run = Run.open(str(folder))
    return {investigation.unit: run.record(investigation) for investigation in sorted(run.done(), key=str)}


def _labels(
    agent: Mapping[Unit, Record], exemplars: Mapping[Unit, Record], overrides: tuple[str, ...]
) -> tuple[dict[str, Labels], dict[str, int]]:
    """Returns the labels of each method, and how many images it showed to a unit on average beyond the exemplars."""
    units = list(agent)
    setting.ready(setting.config(CONFIG, overrides), sorted({unit.layer for unit in units}))
    scripted = setting.shared_out(investigated, [Job(config=CONFIG, overrides=overrides, unit=unit) for unit in units])
    budget = round(mean(images(record) for record in agent.values()))
    jobs = [BaselineJob(overrides=overrides, unit=unit, names=BASELINE_NAMES, budget=budget) for unit in units]
    baselines = setting.shared_out(labelled, jobs)
    used = {
        OWN: budget,
        WITHOUT: round(mean(images(exemplars[unit]) for unit in units)),
        SCRIPTED: round(mean(answer.images for answer in scripted)),
        **dict.fromkeys(BASELINE_NAMES, 0),  # neither of them shows any
    }
    return {
        OWN: {unit: record.labels for unit, record in agent.items()},
        WITHOUT: {unit: exemplars[unit].labels for unit in units},
        SCRIPTED: {answer.unit: answer.labels for answer in scripted},
        **{name: {u: found[name] for u, found in zip(units, baselines, strict=True)} for name in BASELINE_NAMES},
    }, used


def _met(record: Record) -> bool:
    """Whether an investigation ended with an answer or an abstention for which it measured enough."""
    return record.stop is not Stop.LIMIT and count_measuring(record.turns) >= 2


def _loop(records: Sequence[Record]) -> dict[str, Any]:
    found = conduct(records, load_task("description").answer)
    return asdict(found) | {"met_the_rule": proportion([_met(record) for record in records])}


def _ablated(variants: Mapping[str, Mapping[Unit, Record]]) -> dict[str, Any]:
    """Returns the conduct in each run, on the units that all of them have."""
    units = [unit for unit in next(iter(variants.values()), {}) if all(unit in each for each in variants.values())]
    return {name: _loop([records[unit] for unit in units]) for name, records in variants.items() if units}


def _write_units(records: Mapping[Unit, Record], scores: Mapping[Unit, Evaluation]) -> None:
    with (HERE / "units.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(
            "layer unit stop turns measured sent_back tracebacks tokens minutes outcome auc auc_all auc_other labels".split()
        )
        for unit, record in records.items():
            own = score(scores[unit])
            table.writerow([
                unit.layer, unit.index, record.stop.value, len(record.turns), count_measuring(record.turns),
                record.evidence.sent_back, sum(turn.status == "error" for turn in record.turns),
                sum(turn.tokens for turn in record.turns), f"{sum(t.seconds for t in record.turns) / 60:.1f}",
                own["outcome"], own["auc"], own["auc_all"], own["auc_other"], "; ".join(record.labels),
            ])  # fmt: skip


def _report(figures: Mapping[str, Any]) -> str:
    loop, truth = figures["loop"], figures["truth"]
    count = loop["investigations"]
    share, low, high = loop["met_the_rule"][:3]
    answers = loop["ended"].get(Stop.ANSWER.value, 0)
    rows = [
        f"| {name} | {own['tested']} of {own['units']} | {shown(own['auc'], '.2f')} | {shown(own['auc_other'], '.2f')} | "
        f"{shown(own['auc_all'], '.2f')} | {shown(own['auc_other_all'], '.2f')} | {_compared(figures['difference_to'].get(name))} |"
        for name, own in truth.items()
    ]
    return f"""# A real language model as the agent

{figures["model"]}, {count} units of EfficientNet-Lite0, {figures["machine"]}, {figures["date"]}. Made by `make agent`;
each unit is in units.csv, all figures in results.json.

{NOTE if figures["model"] == NAME else ""}

- {share:.0%} of investigations (95 % interval {low:.0%} to {high:.0%}) ended with an answer or an abstention after at least two
  experiments that measured images of its own and ended without an exception. {loop["unmeasured"]} ended without a measurement.
- Endings: {", ".join(f"{count} {name}" for name, count in loop["ended"].items())}. Answers sent back: {loop["sent_back"]}. Answers set aside beside
  an experiment: {loop["set_aside"]}.
- {loop["turns"] / count:.1f} turns and {loop["seconds"] / 60 / count:.1f} minutes per unit; {loop["tracebacks"]} of {loop["experiments"]} experiments ended with a traceback.

All methods were tested with the same generator and the same protocol. AUC: how often an image of a description excites its unit
more than a neutral one. "Other": the same with descriptions of other units of the layer; what a description does not score
beyond that, it does not say about its unit. The first two AUCs are over the descriptions that could be tested. "All": over all
units, in which an abstention, an end without an answer and a label that the generator cannot draw count as 0.5, which is
assigned and not measured. The last column compares the language model's AUC with the method's where both were tested.

**{truth[OWN]["tested"]} of the language model's {answers} answers could be tested.**{_few(truth[OWN]["tested"])}

| method | tested | AUC, own | AUC, other | AUC, own, all | AUC, other, all | language model minus method |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}
{_images(figures.get("images"))}{_ablation(figures.get("ablation"), figures.get("failed", {}), figures.get("ablation_date"))}
{_vllm(figures.get("vllm"), figures.get("vllm_date"))}{_asking(figures.get("asking"))}"""


def _images(used: Mapping[str, int] | None) -> str:
    """Returns the sentence about the images of each method, "" for figures that were made without them."""
    if used is None:
        return ""
    return f"\nImages per unit, beyond the exemplars: {', '.join(f'{name} {count}' for name, count in used.items())}.\n"


def _compared(difference: Mapping[str, Any] | None) -> str:
    if not difference or not difference["units"]:
        return "n/a"
    return f"{shown(difference['auc'], '.2f')}, {difference['units']} units"


def _few(tested: int) -> str:
    """Returns what so few tested descriptions allow to say."""
    return f" No comparison of methods rests on {tested} units." if tested < FEW else ""


def _ablation(variants: Mapping[str, Any] | None, failed: Mapping[str, int], made: str | None) -> str:
    """Returns the section about the ablation, "" if it was not run."""
    if not variants:
        return ""
    rows = [
        f"| {name} | {loop['investigations']} | {shown(loop['met_the_rule'], '.2f')} | {loop['unmeasured']} | "
        f"{loop['turns'] / loop['investigations']:.1f} | {loop['tracebacks']} of {loop['experiments']} | {loop['empty']} | "
        f"{loop['sent_back']} | {loop['set_aside']} | {loop['seconds'] / 60 / loop['investigations']:.1f} |"
        for name, loop in variants.items()
    ]
    lost = ", ".join(f"{count} with {name}" for name, count in failed.items() if count)
    return f"""
# Other forms, prompts and no viewer

The same model on the first units of each layer, on which prompt and loop were developed, {made}, by
`make agent with="ablation=…"`. As shipped, a grammar holds the model to the form of a turn. *text*: no grammar. *tools*: calls of
functions, for which this model was hardly trained. "Met the rule": share of investigations that ended with an answer or an
abstention after two experiments that measured images; its interval is wide with so few units. Units are those that all variants
finished; investigations that failed because of three empty replies in a row: {lost or "none"}.

| variant | units | met the rule | without a measurement | turns per unit | tracebacks | turns without code or answer | sent back | set aside | minutes per unit |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _vllm(loop: Mapping[str, Any] | None, made: str | None) -> str:
    """Returns the section about vLLM, "" if it was not run."""
    if not loop:
        return ""
    count = loop["investigations"]
    return f"""# The same weights through vLLM

{count} whole investigation{"" if count == 1 else "s"} on the processor, in float32, {made}, by `make agent with="vllm=1"`: {", ".join(f"{number} {name}" for name, number in loop["ended"].items())};
{loop["turns"] / count:.1f} turns and {loop["seconds"] / 60 / count:.1f} minutes per unit; {loop["experiments"]} experiments, {loop["tracebacks"]} with a traceback; {loop["unmeasured"]} ended without a
measurement.
"""


def _asking(figures: Mapping[str, Any] | None) -> str:
    """Returns the section about answers of `openmaia ask`, "" if they were not measured."""
    if not figures:
        return ""
    rows = [
        f"| {name} | {one['questions']} | {one['unphrased']} | {one['attempts']} | {one['cited']} of {one['told']} | {one['struck']} | "
        f"{shown(one['precision']['model'], '.2f')} | {shown(one['precision']['told'], '.2f')} | "
        f"{shown(one['recall']['model'], '.2f')} | {shown(one['recall']['told'], '.2f')} | "
        f"{one['untold']} in {one['sentences']} | {one['misjudged']} | {one['seconds'][1]:.0f} |"
        for name, one in figures["units"].items()
    ]
    return f"""
# Answers of `openmaia ask` in words

{figures["model"]}, {figures["machine"]}, {figures["date"]}. Made by `python -m measure.language_model.asking FOLDER`; every question with its answer
is in asking.csv. Runs, questions and truth are those of measure/asking.py, of the half that counts; questions for which `ask` finds
no unit are not put to a model. *Cited*: units that the answer names, of those that the model was told of. *Struck*: names in its text that
are none of these, which a user sees struck. Precision and recall are of the units cited, beside those of the units that it was told of.
*Untold*: words of the grammar in its sentences that neither the lines of the units nor the question have. *Misjudged*: units that it calls
supported though they are not, or the reverse. Two rules count both (see asking.py), and see no other kind of error. Seconds depend on what
else the machine does.

| units | questions | no answer | replies | cited | struck | precision, cited | precision, told | recall, cited | recall, told | untold words | misjudged | seconds a question, median |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
