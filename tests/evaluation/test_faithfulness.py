"""Effects of ablating units of a network that is known: three units see a colour each, and two of them reach the classes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openmaia.agent.metering import metered
from openmaia.cli.commands.evaluate import evaluate as command
from openmaia.cli.commands.faithfulness import ablate, check_layers
from openmaia.cli.terminal.faithfulness import show_faithfulness
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import UsageLedger
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import measure
from openmaia.evaluation.faithfulness import (
    FAITHFULNESS_FILE,
    measure_faithfulness,
    read_faithfulness,
    write_faithfulness,
)
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.storage import StoredTrials
from openmaia.evaluation.trials import Trial
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from openmaia.runs.run import InvestigationId, Run
from tests.evaluation.test_run import make_run
from tests.helpers.samples import record

RED, GREEN, BLUE = (Unit(target="t", layer="colours", index=index) for index in range(3))
PREPROCESS = Preprocess(size=(64, 64), crop=1, resample=Image.Resampling.BICUBIC, mean=(0,) * 3, std=(1,) * 3)


class Colours(nn.Module):
    """Maps of how much redder, greener or bluer than grey a pixel is. The last does not reach the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.colours, self.fc = nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.mix.weight.copy_((1.5 * torch.eye(3) - 0.5)[:, :, None, None])
            self.mix.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
            self.fc.weight.copy_(torch.diag(torch.tensor([10.0, 10.0, 0.0])))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.colours(self.mix(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def target() -> NetworkTarget:
    network = TargetNetwork(module=Colours().eval(), preprocess=PREPROCESS, labels=("rose", "grass", "sky"))
    return NetworkTarget("t", network, ["colours"])


@pytest.fixture
def run(tmp_path: Path, services: EvaluationServices, target: NetworkTarget) -> Run:
    made = make_run(tmp_path, {RED: ("red",), GREEN: ("green",), BLUE: ("blue",)})
    evaluate_run(made, replace(services, target=target), EvaluationDesign(n=6, random_words=0))
    return made


def test_units_that_the_classes_use_are_faithful_to_their_descriptions(run: Run, target: NetworkTarget):
    progress: list[tuple[int, int]] = []
    found = measure_faithfulness(run, target, 200, lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]
    red, green, blue = found.units
    for unit, name in ((red, "rose"), (green, "grass")):
        assert unit.auc.mean > unit.other.mean and unit.difference.mean == unit.auc.mean - unit.other.mean
        assert unit.effect > unit.neutral
        strongest = unit.classes[0]
        assert strongest.name == name and 1 >= strongest.before > strongest.after >= 0
    assert (blue.effect, blue.neutral, blue.auc.mean, blue.classes) == (0, 0, 0.5, ())
    assert found.auc.mean == pytest.approx(np.mean([unit.auc.mean for unit in found.units]))


def effects(trial: Trial, role: str) -> list[float]:
    found: list[float] = []
    for row in trial.rows(role, verified=True):
        pixels = EncodedImage(data=trial.stimuli[row].data).pixels
        tensor = PREPROCESS.tensor(PREPROCESS.view(pixels)[0]).double()
        means = ((1.5 * torch.eye(3) - 0.5).double() @ tensor.flatten(1)).relu().mean(1).numpy()
        p, q = (np.exp(logits) / np.exp(logits).sum() for logits in (means * [10, 10, 0], means * [0, 10, 0]))
        found.append(float((p * np.log(p / q)).sum()))
    return found


def test_effect_is_the_divergence_of_the_probabilities(run: Run, target: NetworkTarget):
    trial = StoredTrials(run).read(InvestigationId(unit=RED, replicate=0), images=True)
    own, neutral = effects(trial, "positive"), effects(trial, "neutral")
    found = measure_faithfulness(run, target, 50).units[0]
    assert (found.effect, found.neutral) == pytest.approx((np.mean(own), np.mean(neutral)), rel=1e-3)
    assert found.auc.mean == pytest.approx(measure("auc", own, neutral))


def test_classes_with_sigmoids_diverge_each_by_itself(run: Run):
    trial = StoredTrials(run).read(InvestigationId(unit=RED, replicate=0), images=True)
    network = TargetNetwork(module=Colours().eval(), preprocess=PREPROCESS, output=OutputMeaning.SIGMOID)
    found = measure_faithfulness(run, NetworkTarget("t", network, ["colours"]), 50).units[0]
    expected: list[float] = []
    for row in trial.rows("positive", verified=True):
        tensor = PREPROCESS.tensor(PREPROCESS.view(EncodedImage(data=trial.stimuli[row].data).pixels)[0]).double()
        red = float(((1.5 * torch.eye(3) - 0.5).double() @ tensor.flatten(1)).relu().mean(1)[0])
        p = 1 / (1 + np.exp(-10 * red))
        expected.append(p * np.log(p / 0.5) + (1 - p) * np.log((1 - p) / 0.5))
    assert found.effect == pytest.approx(np.mean(expected), rel=1e-3)


def test_stored_faithfulness_is_read_and_shown(run: Run, target: NetworkTarget, capsys: pytest.CaptureFixture[str]):
    show_faithfulness(run)
    assert read_faithfulness(run) is None and capsys.readouterr().out == ""
    found = measure_faithfulness(run, target, 50)
    write_faithfulness(run, found)
    assert read_faithfulness(run) == found
    show_faithfulness(run)
    shown = capsys.readouterr().out
    assert "rose" in shown and "colours/2" in shown
    run.files.delete("evaluation/t/colours/2-0.parquet")
    assert read_faithfulness(run) is None
    run.files.write(FAITHFULNESS_FILE, b'{"units": [{}]}')
    assert read_faithfulness(run) is None


def test_run_without_a_network_is_refused(tmp_path: Path):
    made = Run.create(
        load(["name=demo", "units=all", "target.kind=closed_form", "target.name=t", f"paths.runs={tmp_path}"])
    )
    made.set_plan([RED], 1)
    made.publish(record(RED, labels=("red",), description="red", turns=()))
    with pytest.raises(UsageError, match=r"target.kind=\w+; --faithfulness ablates"):
        command([str(made.files.root)], faithfulness=True)


def test_faithfulness_is_not_for_forced_choices(tmp_path: Path):
    with pytest.raises(UsageError, match="--faithfulness is not for the forced choices"):
        command([str(tmp_path)], judge=True, faithfulness=True)


def test_units_of_a_target_whose_use_is_recorded_are_ablated(
    run: Run, target: NetworkTarget, capsys: pytest.CaptureFixture[str]
):
    """`openmaia evaluate --faithfulness` records what a run's models cost."""
    settings = load(["name=x", "units=all", "target.kind=closed_form", "target.name=t"])
    services: Any = SimpleNamespace(target=metered(target, "target", UsageLedger(), 0.0))
    check_layers(run, services)
    ablate(run, settings, services)
    assert read_faithfulness(run) == measure_faithfulness(run, target, settings.evaluate.bootstrap)
    assert capsys.readouterr().out
