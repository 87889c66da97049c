"""What `system.effect` and `system.drives` say of units whose effect is known: each unit of a small network raises one planted
class. Random directions of the same layer are the control. Writes effects.csv, a row per unit and direction, and its section
of RESULTS.md.
"""

import csv
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

import openmaia
from measure.measuring import machine, shown
from measure.science import sections
from measure.science.evaluated import RESAMPLES
from openmaia.assembly import evaluation, hosts
from openmaia.config.loading import load
from openmaia.core.messages import Chat, Reply
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import proportion
from openmaia.evaluation.effects import EffectTests, measure_effects
from openmaia.evaluation.run import evaluate_run
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.planted_edges import PREPROCESS, SIZE, UNITS, PlantedEdges, colour_fields, network, seen_colour
from tests.helpers.samples import record

CSV = Path(__file__).with_name("effects.csv")
SECTION = "Effects of units"
IMAGES = 200

_EXPERIMENT = """[HYPOTHESIS LIST]:
1. not known yet

[CODE]:
```python
images = [image for _, image in tools.dataset_exemplars(system)]
changes = system.effect(images, set=0)
print("effect:", min(changes, key=lambda each: each[1])[0])
print("drives:", [name for name, _ in system.drives()][0])
```"""


class EffectsAgent:
    """Asks once for the effects of the unit, and answers with the class that falls most when the unit is ablated on its
    exemplars."""

    name = "effects"

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(text=self._reply(chat)) for chat in chats]

    def _reply(self, chat: Chat) -> str:
        if len(chat.messages) < 4:
            return _EXPERIMENT
        return f"[DESCRIPTION]: raises {_named('effect', chat.messages[-1].text)}\n[LABEL 1]: a class"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEffect:
    """What one investigation named, beside the class that is planted for the unit of this index."""

    kind: str
    index: int
    planted: str
    effect: str
    drives: str


def measure(smoke: bool) -> dict[str, Any]:
    found = list(investigated(2 if smoke else UNITS))
    tests = tested(found)
    if not smoke:
        write_units(found)
        sections.write(SECTION, section(found, tests))
    named = {f"{kind}, {by}": share(found, kind, by) for kind in ("unit", "direction") for by in ("effect", "drives")}
    return named | {"supported": tests.supported, "answers of other units": tests.shuffled, "auc": tests.auc.as_list()}


def investigated(count: int) -> Iterator[NamedEffect]:
    module = PlantedEdges()
    with tempfile.TemporaryDirectory() as folder:
        directions = str(Path(folder) / "directions.safetensors")
        weight = torch.nn.functional.normalize(torch.randn(UNITS, UNITS, generator=torch.Generator().manual_seed(1)))
        save_file({"weight": weight}, directions)
        for kind, layer in (("unit", "units"), ("direction", "units/directions")):
            for index in range(count):
                result = openmaia.investigate(
                    module,
                    layer,
                    index,
                    images=[np.asarray(each.pil()) for each in colour_fields(IMAGES)],
                    preprocess={"mean": list(PREPROCESS.mean), "std": list(PREPROCESS.std), "size": SIZE},
                    backbone=EffectsAgent(),
                    evaluate=False,
                    target={"directions": {"units": directions}},
                    task={
                        "effects": True,
                        "evidence": dict.fromkeys(("experiments", "labels", "drawable", "confirm"), 0),
                    },
                    paths={"exemplars": f"{folder}/exemplars", "runs": f"{folder}/runs"},
                )
                said = "".join(
                    part for turn in result.record.turns for part in turn.observation if isinstance(part, str)
                )
                yield NamedEffect(
                    kind=kind,
                    index=index,
                    planted=f"class {int(module.edges[index])}",
                    effect=result.description.removeprefix("raises "),
                    drives=_named("drives", said),
                )


def tested(found: Sequence[NamedEffect]) -> EffectTests:
    """The test of what was named for units by `effect`, on drawn scenes."""
    target = NetworkTarget("t", network(labels=()), ["units"])
    with tempfile.TemporaryDirectory() as folder:
        settings = load(
            [str(REPOSITORY / "configs/demo.yaml"), "name=effects", f"paths.runs={folder}", "evaluate.n=10"]
        )
        run = Run.create(settings)
        answers = {Unit(target="t", layer="units", index=each.index): each for each in found if each.kind == "unit"}
        run.set_plan(list(answers), 1)
        for unit, named in answers.items():
            label = f"{seen_colour(unit.index)} house"
            run.publish(record(unit, labels=(label,), description=label, turns=(), effects=(named.effect,)))
        services = evaluation.evaluation_services(settings, hosts.host("generator", settings), target)
        evaluate_run(run, services, evaluation.design(settings))
        tests = measure_effects(run, target, RESAMPLES)
    assert tests is not None
    return tests


def _named(what: str, text: str) -> str:
    found = re.search(rf"^{what}: (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def share(found: Sequence[NamedEffect], kind: str, by: str) -> list[float]:
    """The share of the units that were named rightly, with its 95 % interval."""
    known = proportion([getattr(each, by) == each.planted for each in found if each.kind == kind])
    assert known is not None
    return known


def write_units(found: Sequence[NamedEffect]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("kind index planted effect drives".split())
        table.writerows([each.kind, each.index, each.planted, each.effect, each.drives] for each in found)


def rows(found: Sequence[NamedEffect]) -> list[str]:
    """The rows of the table in RESULTS.md."""
    return [
        f"| {name} | {sum(each.kind == kind for each in found)} | {_shown(share(found, kind, 'effect'))} | "
        f"{_shown(share(found, kind, 'drives'))} |"
        for kind, name in (("unit", "units"), ("direction", "random directions of norm 1"))
    ]


def _shown(values: Sequence[float]) -> str:
    return f"{values[0]:.0%} ({values[1]:.0%} to {values[2]:.0%})".replace("%", " %")


def section(found: Sequence[NamedEffect], tests: EffectTests) -> str:
    return f"""A network with {UNITS} units and {UNITS} classes (tests/helpers/planted_edges.py), {machine()}, {date.today().isoformat()}, by
`make science only=effects`. One large weight leads from each unit to one class; all other weights are noise of a tenth of its size,
and a layer between units and classes mixes the units a little. A scripted agent asks `system.effect(exemplars, set=0)` and
`system.drives()` in its experiment, and names the class that falls most without the unit. Named: the share of units for which that
is the planted class, with 95 % intervals. For a random direction it is compared with the class of the unit of the same
index, which it names by chance. Each unit is in effects.csv.

| | number | named by `effect` | named by `drives` |
|---|---|---|---|
{chr(10).join(rows(found))}

The test of effects (`openmaia evaluate --faithfulness`), of what `effect` named for the units, on 10 drawn scenes each, in which a house
has the colour that excites the unit most: supported are {_shown(tests.supported or ())} of {len(tests.units)} answers, and {_shown(tests.shuffled or ())} of the same
answers put to four other units each. AUC {shown(tests.auc.as_list())}, for random directions {shown(tests.random.as_list())}.
"""
