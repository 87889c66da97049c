"""Tool sets compared unit by unit, and settings that are refused."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.tools.api_text import api_text
from openmaia.assembly.ablation import ablation_configs
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.tools import BANK
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.ablation import FULL, OF_BANK, OTHER, SETS, ablation_results
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.storage import to_parquet
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.reporting.figures.papers import ablation_csv
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.helpers.samples import store_evaluation

CONFIG = [str(REPOSITORY / "configs/closed-form.yaml")]


def evaluated(folder: Path, positive: dict[int, float], abstained: tuple[int, ...] = ()) -> Run:
    """A run whose units answer the images of their descriptions so, and their neutral ones with 1."""
    run = Run.create(load([*CONFIG, f"paths.runs={folder}"]))
    for index, value in positive.items():
        claim = Claim(unit=Unit(target="net", layer="a", index=index), labels=("x",))
        trial = Trial(claim=claim, outcome="abstained")
        if index not in abstained:
            answers = [value, value + 1, 1.0, 1.0]
            stimuli = tuple(
                Stimulus(role=role, prompt=f"{role} {at}", digest="d", activation=answer)
                for at, (role, answer) in enumerate(zip(("positive",) * 2 + ("neutral",) * 2, answers, strict=True))
            )
            matrix = np.zeros((4, 9), np.float16)
            matrix[:, index] = answers
            trial = Trial(
                claim=claim, outcome="tested", stimuli=stimuli, matrix=matrix, location=np.zeros(9), scale=np.ones(9)
            )
        store_evaluation(
            run, InvestigationId(unit=claim.unit, replicate=0), to_parquet(Evaluation(trial=trial, others=()))
        )
    return run


def test_differences_are_paired_over_common_units(tmp_path: Path):
    full = evaluated(tmp_path / "full", {0: 10.0, 1: 20.0, 2: 99.0})
    less = evaluated(tmp_path / "less", {0: 7.0, 1: 17.0})
    one, other = ablation_results({FULL: full, "no-editing": less}, 400)
    assert (one.units, other.units) == (2, 2)
    assert (one.positive.mean, other.positive.mean) == (15.5, 12.5)
    assert one.against is None
    assert other.positive_against is not None
    low, mean, high = other.positive_against.low, other.positive_against.mean, other.positive_against.high
    assert (low, mean, high) == pytest.approx((-3.0, -3.0, -3.0)), "units differ, their differences do not"


def test_abstention_counts_as_chance_over_all_units_only(tmp_path: Path):
    (row,) = ablation_results({FULL: evaluated(tmp_path, {0: 10.0, 1: 20.0}, abstained=(1,))}, 100)
    assert (row.units, row.tested, row.positive.mean, row.auc.mean, row.auc_all.mean) == (2, 1, 10.5, 1.0, 0.75)


def test_csv_separates_published_cells(tmp_path: Path):
    made = ablation_csv(ablation_results({FULL: evaluated(tmp_path, {0: 10.0})}, 50), "net").decode()
    lines = list(csv.DictReader(io.StringIO(made)))
    assert [line["source"] for line in lines] == ["ours"] + ["MAIA paper (arXiv 2404.14394), table A5"] * 9
    theirs = {(line["network"], line["tool_set"]): line for line in lines[1:]}
    assert theirs["resnet152", "all tools (DALL-E 3)"]["positive"] == "4.64"
    assert theirs["dino_vits8", "exemplars only"]["neutral"] == "-0.37"
    assert {line["auc"] for line in lines[1:]} == {""}, "the paper has none"


def test_each_tool_set_has_a_run():
    made = ablation_configs(CONFIG, ["generator.size=96"], "")
    assert list(made) == [name for name in SETS if name not in OF_BANK]
    assert {name: tuple(config.without) for name, config in made.items()} == {name: SETS[name] for name in made}
    assert len({config.name for config in made.values()}) == 5
    assert (made[OTHER].generator.size, made[FULL].generator.size) == (96, 224)
    assert OTHER not in ablation_configs(CONFIG, [], "")


def test_with_a_bank_it_is_alone_withheld_or_part_of_all_tools():
    made = {name: {*each.without} for name, each in ablation_configs([*CONFIG, "bank.images=60"], [], "").items()}
    assert made["bank-only"] == {"dataset_exemplars", "text2image", "edit_images"} and made["no-bank"] == {BANK}
    assert {name for name, without in made.items() if BANK not in without} == {FULL, "no-editing", "bank-only"}


@pytest.mark.parametrize(
    ("more", "other", "sets", "said"),
    [
        (["backbone.kind=replay", "backbone.record=pyproject.toml"], [], "", "gives the same replies whatever"),
        (["without=[edit_images]"], [], "", "leave this key out"),
        (
            ["backbone.kind=openai", "backbone.model=m", "shared.images=9", "shared.look_up=true"],
            [],
            "",
            "what other agents drew",
        ),
        (["task.name=spurious"], [], "", "cannot be compared"),
        ([], [], "full,nothing", "unknown or named twice"),
        ([], [], "full,full", "unknown or named twice"),
        ([], [], "no-editing", "name it, too"),
        ([], [], "full,bank-only", "the config has no bank"),
        ([], [], "full,other-generator", "go together"),
        ([], ["generator.size=96"], "full,no-editing", "go together"),
        ([], ["generator.size=224"], "", "it changes nothing"),
        ([], ["generator.size=96", "seed=5"], "", "it changes seed"),
    ],
)
def test_contradictory_settings_are_refused(more: list[str], other: list[str], sets: str, said: str):
    with pytest.raises(UsageError, match=said):
        ablation_configs([*CONFIG, *more], other, sets)


def test_unknown_tool_is_refused_by_name():
    with pytest.raises(UsageError, match=r"without=\['hammer'\].*text2image"):
        ablation_configs([*CONFIG, "without=[hammer]"], [], "")


def test_prompt_omits_withheld_tools():
    text = api_text({}, without=("text2image", "edit_images"))
    body, withheld = text.rsplit("\n", 1)
    assert "text2image(" not in body and "edit_images(" not in body
    assert "dataset_exemplars(" in body and "call_neuron(" in body
    assert withheld == "Not available in this investigation: tools.text2image, tools.edit_images."
