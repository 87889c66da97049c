"""What ablating each unit does to the classes, on the images of its description. Uses the run of the part `real`, which is made
if it is not there. Writes faithfulness.csv, a row per unit, and its section of RESULTS.md.
"""

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median_high
from typing import Any

from measure.measuring import machine, shown
from measure.science import sections
from measure.science.evaluated import RESAMPLES
from measure.science.real import LAYERS, command, investigated_run
from openmaia.evaluation.analysis.bootstrap import mean_interval
from openmaia.evaluation.analysis.verdict import run_verdicts
from openmaia.evaluation.faithfulness import Faithfulness, UnitFaithfulness, read_faithfulness
from openmaia.runs.run import InvestigationId, Run

CSV = Path(__file__).with_name("faithfulness.csv")
SECTION = "Faithfulness"


def measure(smoke: bool) -> dict[str, Any]:
    folder = investigated_run(smoke)
    command("evaluate", str(folder), "--faithfulness")
    run = Run.open(str(folder))
    found = read_faithfulness(run)
    assert found is not None
    if not smoke:
        write_units(run, found)
        sections.write(SECTION, section(found))
    return {"units": len(found.units), "auc": found.auc.as_list(), "difference": found.difference.as_list()}


def write_units(run: Run, found: Faithfulness) -> None:
    scores, verdicts = run.scores(), run_verdicts(run)
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("layer unit verdict auc_activation effect neutral auc other classes labels".split())
        for each in found.units:
            investigation = InvestigationId(unit=each.unit, replicate=each.replicate)
            table.writerow([
                each.unit.layer, each.unit.index, verdicts[investigation].verdict.value,
                *(f"{value:.4g}" for value in (
                    scores[investigation]["auc"], each.effect, each.neutral, each.auc.mean, each.other.mean
                )),
                "; ".join(f"{name} {fall:.4f}" for name, fall in each.classes), "; ".join(each.labels),
            ])  # fmt: skip


def section(found: Faithfulness) -> str:
    rows = [
        f"| `{layer}` | {len(own)} | {mean_of(own, 'auc')} | {mean_of(own, 'other')} | {mean_of(own, 'difference')} | "
        f"{median_high(each.effect for each in own):.2g} | {median_high(each.neutral for each in own):.2g} |"
        for layer in LAYERS
        if (own := [each for each in found.units if each.unit.layer == layer])
    ]
    pooled = " | ".join(shown(each.as_list()) for each in (found.auc, found.other, found.difference))
    named = sum(bool(each.classes) for each in found.units)
    return f"""The {len(found.units)} described units of the section before, {machine()}, {date.today().isoformat()}, by `make science only=faithfulness`. Each unit is
ablated in the forward pass (its response set to 0), and the class probabilities are compared with those of the unchanged network:
the effect on an image is their Kullback-Leibler divergence, in nats. AUC: how often the effect is larger on an image of the
unit's description than on a neutral one. Other: the same with images of descriptions of two other units. Intervals of layers are over
units, those of all units over prompts and units. Each unit is in faithfulness.csv.

| | units | AUC of the effect | images of other descriptions | difference | median effect, nats | on neutral images |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}
| all | {len(found.units)} | {pooled} | | |

For {named} of them a class loses at least 0.1 % of probability on average when the unit is ablated. The three layers have
responses of both signs, before an activation function: 0 is not their resting value there, and ablation has an effect on images that do
not excite the unit, too.
"""


def mean_of(units: Sequence[UnitFaithfulness], name: str) -> str:
    values = [value for each in units if (value := getattr(each, name).mean) == value]
    return shown(mean_interval(values, RESAMPLES).as_list())
