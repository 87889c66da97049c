"""The published pairing: prompts of all methods are shared, and each description takes those that it entails most and least."""

import heapq
import json
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.cli.commands.evaluate import evaluate as command
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import MalformedAnswer, UnansweredQuestion
from openmaia.evaluation.pairing import find_most_and_least, parse_ratings, write_paired
from openmaia.evaluation.prompts import PublishedPromptWriter
from openmaia.evaluation.run import evaluate_run, measure_together
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.storage import StoredTrials
from openmaia.runs.further import further_evaluation
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.evaluation.scripted_model import ScriptedModel, model
from tests.evaluation.test_run import GREEN, RED, make_run
from tests.helpers.images import sample_image, save
from tests.helpers.samples import record

UNIT = Unit(target="t", layer="l", index=3)
REFUSAL = "I'm sorry, but I can't help with that."
RATES = "How far does the description entail"


def claim(description: str) -> Claim:
    return Claim(unit=UNIT, description=description, method=description)


def judging(question: str, _: int) -> str:
    """Writes prompts that contain the description. Entails most those that contain it, least those of others that excite."""
    if "like this:" not in question:
        return "none"
    description = question.split("like this:\n\n")[1].splitlines()[0]
    if RATES not in question:
        kind = "quiet" if "leaves this neuron quiet" in question else "loud"
        return "\n".join(f"{n}. {kind} {description} {'abcdefg'[n - 1]}" for n in range(1, 8))
    prompts = [line.split(". ", 1) for line in question.splitlines() if line[:1].isdigit()]
    return "\n".join(
        f"{number}: {100 if f'loud {description}' in prompt else 0 if 'loud' in prompt else 50}"
        for number, prompt in prompts
    )


@pytest.mark.parametrize("form", ["{n}: {r}", "{n}. a dog 7 at dawn: {r}", "**{n}:** {r}%", "{n}) {r}/100"])
def test_ratings_parse(form: str):
    assert parse_ratings("\n".join(form.format(n=n, r=10 * n) for n in range(1, 4)), 3) == [10, 20, 30]


@pytest.mark.parametrize(
    "answer",
    [REFUSAL, "1: 5\n2: 6", "1: 5\n2: 6\n2: 7", "1: 5\n2: 6\n3: 101", "1: 5\n2: 6\n4: 7", "1: 0.8\n2: 0.95\n3: 1.0"],
)
def test_ratings_that_miss_a_prompt_are_refused(answer: str):
    with pytest.raises(MalformedAnswer):
        parse_ratings(answer, 3)


def test_choice_is_that_of_a_heap_without_common_prompts():
    ratings = [(37 * n) % 41 for n in range(42)]
    most, least = find_most_and_least(ratings)
    assert [ratings[n] for n in most] == heapq.nlargest(7, ratings)
    assert [ratings[n] for n in least] == heapq.nsmallest(7, ratings)
    assert find_most_and_least([5] * 14) == (list(range(7)), list(range(7, 14)))
    assert find_most_and_least([1, 9, 5, 5, 3]) == ([1, 2], [0, 4]), "fewer prompts than asked for are halved"


def test_prompts_of_all_methods_are_shared():
    claims = [claim(text) for text in ("dogs", "cats", "cows")]
    backbone = ScriptedModel(judging)
    seeds: dict[str, set[int]] = {}
    for own, prompts in zip(claims, write_paired(claims, model(backbone), 0), strict=True):
        assert isinstance(prompts, list)
        assert [each.role for each in prompts] == ["positive"] * 7 + ["neutral"] * 7
        assert [own.description in each.prompt for each in prompts] == [True] * 7 + [False] * 7
        for each in prompts:
            seeds.setdefault(each.prompt, set()).add(each.seed)
    assert all(len(each) == 1 for each in seeds.values()), "one prompt has one image for all methods"
    questions = [chat.messages[1].text for chat in backbone.chats if RATES in chat.messages[1].text]
    assert len(questions) == 3 and all("\n42. " in question and "\n43. " not in question for question in questions)


def test_abstentions_have_no_prompts_and_refusals_are_reported():
    claims = [claim(text) for text in ("dogs", "", "cats")]
    assert write_paired(claims, model(ScriptedModel(judging)), 0)[1] == []
    refusing = ScriptedModel(lambda question, n: REFUSAL if RATES in question else judging(question, n))
    written = write_paired(claims, model(refusing), 0)
    assert [type(each) for each in written] == [UnansweredQuestion, list, UnansweredQuestion]


def test_runs_are_tested_on_shared_prompts(tmp_path: Path, services: EvaluationServices):
    one = make_run(tmp_path, {RED: ("red",), GREEN: ("green",)}, "one")
    other = make_run(tmp_path, {RED: ("blue",)}, "other")
    asked = model(ScriptedModel(judging))
    paired = replace(services, model=asked, writer=PublishedPromptWriter(asked, "pairing"))
    design = EvaluationDesign(preset="pairing", random=0, detect=0, random_words=0)
    done: list[tuple[int, int]] = []
    measure_together([one, other], paired, design, lambda *counts: done.append(counts))
    assert done == [(1, 2), (2, 2)]
    for run in (one, other):
        evaluate_run(run, paired, design)
    red = InvestigationId(unit=RED, replicate=0)
    trials = [next(iter(StoredTrials(run, [red]))) for run in (one, other)]
    assert {trial.protocol for trial in trials} == {"pairing over 2 methods"}
    images = [{s.prompt: (s.role, s.digest) for s in trial.stimuli if s.role != "unrelated"} for trial in trials]
    for own, foreign, word in ((images[0], images[1], "blue"), (images[1], images[0], "red")):
        neutral = {prompt for prompt, (role, _) in own.items() if role == "neutral"}
        assert neutral == {f"loud {word} {letter}" for letter in "abcdefg"}, (
            "the least entailed are those of the other method"
        )
        assert all(foreign[prompt] == ("positive", own[prompt][1]) for prompt in neutral), (
            "and they are the same images"
        )
    alone = next(iter(StoredTrials(one, [InvestigationId(unit=GREEN, replicate=0)])))
    assert alone.protocol == "pairing"
    done.clear()
    measure_together([one, other], paired, design, lambda *counts: done.append(counts))
    assert done == [], "what is tested is not tested again"


def test_runs_with_different_tests_are_not_paired(tmp_path: Path):
    runs: list[Run] = [make_run(tmp_path, {RED: ("red",)}, name) for name in ("one", "other")]
    served = [
        "evaluate.writer.kind=openai",
        "evaluate.writer.model=m",
        "evaluate.writer.base_url=http://127.0.0.1:1/v1",
    ]
    path = Path(runs[1].files.root) / "config.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 3"))
    with pytest.raises(UsageError, match=r"the same images, and seed differ; give the same values"):
        command([*(run.files.root for run in runs), "evaluate.preset=pairing", *served], name="p")


def test_command_tests_runs_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The recorded writer gives the same seven prompts for each role and description, and their ratings when it is asked again.

    Asked a third time, it says that the label is not what the unit is known to respond to.
    """
    said = "\n".join(
        f"{n}. a {colour} square" for n, colour in enumerate(("red", "blue", "teal", "pink", "grey", "tan", "lime"), 1)
    )
    replies = [said, "\n".join(f"{n}: {100 - 10 * n}" for n in range(1, 8)), "no"]
    (tmp_path / "history.json").write_text(json.dumps([{"role": "assistant", "content": text} for text in replies]))
    save(tmp_path / "pictures" / "0.png", sample_image(0, (40, 40)))
    own = [
        str(REPOSITORY / "configs/closed-form.yaml"),
        "pictures.kind=folder",
        f"pictures.folder={tmp_path / 'pictures'}",
    ]
    runs: list[Run] = []
    for name, label in (("one", "red"), ("other", "blue")):
        run = Run.create(load([*own, f"name={name}", f"paths.runs={tmp_path}", "evaluate.pictures=0"]))
        unit = Unit(target="closed_form", layer="mono", index=0)
        run.set_plan([unit], 1)
        run.publish(record(unit, labels=(label,), description=label, turns=()))
        runs.append(run)
    test = [
        "evaluate.preset=pairing",
        "evaluate.writer.kind=replay",
        f"evaluate.writer.record={tmp_path / 'history.json'}",
    ]
    command([*(run.files.root for run in runs), *test, "evaluate.random_words=0", "evaluate.judge=none"], name="paired")
    trials = [next(iter(StoredTrials(further_evaluation(run, "paired")))) for run in runs]
    assert [trial.protocol for trial in trials] == ["pairing over 2 methods"] * 2
    own_images = [[(s.role, s.prompt, s.digest) for s in trial.stimuli if s.role != "unrelated"] for trial in trials]
    assert own_images[0] == own_images[1], "the same prompts, rated alike, are the same images"
    assert [prompt.split()[1] for _, prompt, _ in own_images[0]] == ["red", "blue", "teal", "lime", "tan", "grey"]
    assert "one" in capsys.readouterr().out
