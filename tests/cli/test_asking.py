"""`openmaia ask` and `openmaia.ask`: units with their evidence, in terminal, Python and JSON."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

import openmaia
from openmaia.analysis.responding import rank_units
from openmaia.analysis.search import LEAST_COSINE
from openmaia.assembly import targets
from openmaia.assembly.asking import LEAST_PERCENT, RunQuestions, phrase_answer
from openmaia.cli.terminal.asking import answer_document, show_answer
from openmaia.config.loading import load, restore
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Generation
from openmaia.core.units import Unit
from openmaia.models.backbones.viewer import NoViewer
from openmaia.models.text_embedding import load_text_embedding
from openmaia.offline.scenes.drawing import draw
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.runs.run import InvestigationId, Run
from openmaia.serving.laboratory import Laboratory
from tests.cli.test_hostile_text import assert_harmless
from tests.evaluation.scripted_model import answering, model
from tests.helpers import minilm
from tests.helpers.hostile import TEXTS
from tests.helpers.living import UNITS, living
from tests.helpers.misbehaving import Act, answer, misbehaving
from tests.reporting.making import record

__all__ = ["living"]


class Missing(NoViewer):
    """A viewer whose weights are not on this machine."""

    def __init__(self, config: object = None):
        raise AssertionError("the viewer is loaded")


SAID = ("striped cat", "boat on the sea", "boat without night", "red vehicle")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four units of layer4 and one of layer3, with drawn scenes as the generator."""
    folder: Path = tmp_path_factory.mktemp("asked")
    config = load(
        [
            "name=asked",
            "units=all",
            "target.name=net",
            "generator.kind=scenes",
            "generator.size=64",
            "evaluate.writer.kind=scene_rules",
            f"paths.runs={folder}",
        ]
    )
    opened = Run.create(config)
    units = [Unit(target="net", layer="layer4", index=n) for n in range(4)] + [
        Unit(target="net", layer="layer3", index=7)
    ]
    opened.set_plan(units, 1)
    for unit, text in zip(units, (*SAID, "boat"), strict=True):
        answered = record(unit, config, text=text)
        opened.publish(replace(answered, labels=(text,), description=f"Responds to {text}.", turns=()))
    return opened


def names(answer: object) -> list[str]:
    return [each.name for each in answer.units]  # type: ignore[attr-defined]


def test_units_are_named_with_what_answers(made: Run):
    answer = openmaia.ask(made.files.root, "which units respond to boats?")
    assert set(names(answer)) == {"layer3/7", "layer4/1", "layer4/2", "layer4/3"}
    first = answer.units[0]
    assert (first.name, first.labels, first.verdict) == ("layer3/7", ("boat",), "not tested")
    assert first.evidence == ('"boat"',) and answer.asked == "boats"
    assert answer.sources == ("labels and descriptions, by words and their synonyms",)


def test_layers_of_a_question_restrict_it(made: Run):
    assert names(openmaia.ask(made.files.root, "which units of layer3 respond to ships?")) == ["layer3/7"]
    assert names(openmaia.ask(made.files.root, "boats in layer4 -night")) == ["layer4/1", "layer4/3"]
    assert names(openmaia.ask(made.files.root, "which units of layer3?")) == ["layer3/7"]
    with pytest.raises(UsageError, match="unknown layer 'layer9' of net; did you mean 'layer4'"):
        openmaia.ask(made.files.root, "which units of layer9 respond to ships?")


def test_conditions_restrict_it_and_typos_are_named(made: Run):
    assert names(openmaia.ask(made.files.root, "boats verdict:supported")) == []
    assert set(names(openmaia.ask(made.files.root, "boats index>2"))) == {"layer3/7", "layer4/3"}
    with pytest.raises(UsageError, match="no field verdct; the nearest is verdict"):
        openmaia.ask(made.files.root, "boats verdct:supported")
    with pytest.raises(UsageError, match="has no words"):
        openmaia.ask(made.files.root, " ")


def test_nothing_found_is_said(made: Run, capsys: pytest.CaptureFixture[str]):
    show_answer(openmaia.ask(made.files.root, "which units respond to zebras?"), 20)
    assert 'None of 5 units answers to "zebras"' in capsys.readouterr().out


def test_command_prints_units_and_documents(made: Run):
    ask = [sys.executable, "-m", "openmaia.cli", "ask", made.files.root]
    done = subprocess.run([*ask, "boats", "--json"], capture_output=True, text=True, timeout=100)
    found = json.loads(done.stdout)["units"]
    assert done.returncode == 0 and {each["unit"] for each in found} == {
        "net/layer3/7", "net/layer4/1", "net/layer4/2", "net/layer4/3",
    }  # fmt: skip
    done = subprocess.run([*ask, "scor>0.8 boats"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: There is no field scor; the nearest is score. Quotes search for the text itself.\n"


def test_real_model_of_sentences_finds_labels_by_meaning(made: Run):
    asked = ("which units of layer4 respond to automobiles?", "which units respond to cats with stripes?", "tax law")
    questions = RunQuestions(made, load_text_embedding(minilm.folder()))
    found = [questions.ask(each) for each in asked]
    assert names(found[0]) == ["layer4/3"] and names(found[1]) == ["layer4/0"] and names(found[2]) == []
    (match,) = [each.match for each in found[0].units]
    assert match is not None and LEAST_COSINE <= match.score < 1 and "red vehicle" in match.text
    assert found[0].sources == ("labels and descriptions, by meaning",)


# -- language models --------------------------------------------------------------------------------------------------


def test_model_cites_units_and_others_are_struck(made: Run, capsys: pytest.CaptureFixture[str]):
    questions = RunQuestions(made)
    answer = questions.ask("which units of layer4 respond to boats?")
    spoken = answering("Boats excite [layer4/1], and [layer4/99], layer3/7 and [layer4/0].")
    said = phrase_answer(answer, model(spoken), questions.layers)
    assert said.phrased == "Boats excite [layer4/1], and [struck], [struck] and [struck]."
    assert said.struck == ("layer4/99", "layer3/7", "layer4/0") and said.units == answer.units
    told = spoken.chats[0].messages[1].text
    assert "[layer4/1] boat on the sea (not tested)" in told and "layer4/0" not in told
    show_answer(said, 20)
    assert (
        "struck, because it is none of the units that the model was told of: layer4/99, layer3/7, layer4/0"
        in " ".join(capsys.readouterr().out.split())
    )


def test_model_is_told_how_many_units_of_all_it_sees_and_so_is_the_user(made: Run, capsys: pytest.CaptureFixture[str]):
    questions = RunQuestions(made)
    answer = questions.ask("boats")
    few = answering("See [layer3/7].")
    phrase_answer(answer, model(few), questions.layers)
    assert "Found: 4 units. Each line" in few.chats[0].messages[1].text
    first = answer.units[0]
    numbered = [
        replace(first.row, investigation=InvestigationId(unit=replace(first.row.unit, index=n), replicate=0))
        for n in range(40)
    ]
    many = replace(answer, units=tuple(replace(first, row=row) for row in numbered))
    spoken = answering("See [layer3/0], [layer3/29] and [layer3/30].")
    said = phrase_answer(many, model(spoken), questions.layers)
    assert "Found: 40 units, of which these are the best 30. Each line" in spoken.chats[0].messages[1].text
    assert (said.phrased, said.struck) == ("See [layer3/0], [layer3/29] and [struck].", ("layer3/30",))
    show_answer(said, 1)
    assert "the model was told of the best 30 of 40 units" in " ".join(capsys.readouterr().out.split())


def test_model_that_cites_nothing_is_asked_again_and_its_text_is_not_shown(made: Run):
    questions = RunQuestions(made)
    answer = questions.ask("boats")
    second = phrase_answer(answer, model(answering("Some units.", "See [layer4/1].")), questions.layers)
    assert (second.phrased, second.unphrased) == ("See [layer4/1].", "")
    never = phrase_answer(answer, model(answering("Some units.", "[layer4/77]")), questions.layers)
    assert never.phrased == "" and "names no unit" in never.unphrased and never.units == answer.units
    with pytest.raises(UsageError, match=r"--model run: backbone.kind=scripted is no language model"):
        questions.phrase(answer, "run")


def test_model_of_a_config_is_asked_over_http_and_units_are_listed_if_it_fails(
    made: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0")
    with misbehaving() as server:
        file = tmp_path / "speaks.yaml"
        # What would describe images is not built, because none are shown.
        file.write_text(
            f"backbone: {{kind: openai, model: small, base_url: {server.base}/v1, tries: 1, sees: text}}\n"
            "viewer: {kind: tests.cli.test_asking:Missing}\n"
        )
        server.otherwise = lambda asked: Act(body=answer(asked, "Boats excite [layer3/7] and [layer4/9]."))
        said = openmaia.ask(made.files.root, "boats", model=str(file))
        (asked,) = server.asked
        assert "[layer3/7] boat (not tested)" in asked.texts()[-1] and asked.body["model"] == "small"
        assert (said.phrased, said.struck) == ("Boats excite [layer3/7] and [struck].", ("layer4/9",))
        server.otherwise = lambda asked: Act(status=500, body={"error": {"message": "out of order"}})
        away = openmaia.ask(made.files.root, "boats", model=str(file))
    assert away.phrased == "" and "out of order" in away.unphrased and away.units == said.units
    show_answer(away, 20)
    assert "layer3/7" in capsys.readouterr().out


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_hostile_texts_of_models_and_questions_are_harmless(made: Run, text: str, capsys: pytest.CaptureFixture[str]):
    questions = RunQuestions(made)
    answer = replace(questions.ask("boats"), asked=text)
    row = answer.units[0].row
    hostile = replace(row, header=row.header | {"labels": [text], "description": text}, class_name=text)
    answer = replace(answer, units=(replace(answer.units[0], row=hostile), *answer.units[1:]))
    said = phrase_answer(answer, model(answering(f"[{answer.units[0].name}] {text} [{text[:20]}]")), questions.layers)
    show_answer(replace(said, unphrased=text, struck=(text,)), 20)
    captured = capsys.readouterr()
    assert captured.out and not captured.err
    assert_harmless(captured.out)
    assert json.loads(json.dumps(answer_document(said)))["units"][0]["labels"] == [text]


# -- pictures ---------------------------------------------------------------------------------------------------------


def ranked(living: Run, image: EncodedImage) -> dict[Unit, float]:
    """The percentage of dataset images that excite each unit less than an image."""
    store = find_exemplars(living).store
    assert store is not None
    known = {
        unit: one for layer in ("stage4", "output") for unit, one in store.statistics("scenes_resnet", layer).items()
    }
    target = targets.target(restore(living.config(), living.name))
    return {each.unit: each.percent for each in rank_units(target, image, {unit: known[unit] for unit in UNITS})}


@pytest.fixture(scope="module")
def picture(living: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn scene that excites a unit more than the dataset does."""
    prompts = ("a boat on the sea", "a red car in a street", "a cat in a room", "a tree at night", "an owl in a forest")
    scenes = (draw(Generation(prompt=prompt, seed=seed), 96).image for seed in range(6) for prompt in prompts)
    image = next(each for each in scenes if max(ranked(living, each).values()) >= LEAST_PERCENT)
    path: Path = tmp_path_factory.mktemp("picture") / "scene.png"
    path.write_bytes(image.png)
    return path


def test_picture_names_the_units_that_it_excites(living: Run, picture: Path):
    answer = openmaia.ask(living.files.root, pictures=[picture])
    image = EncodedImage(data=picture.read_bytes())
    wanted = {unit for unit, percent in ranked(living, image).items() if percent >= LEAST_PERCENT}
    assert {each.row.unit for each in answer.units} == wanted != set()
    assert all("the picture excites it more than" in each.evidence[0] for each in answer.units)
    assert answer.sources[-1] == "activations on 1 picture"


def test_large_picture_is_measured_as_an_image_of_a_dataset_and_as_the_live_view_does(
    living: Run, picture: Path, tmp_path: Path
):
    large = Image.open(picture).resize((1500, 1500), Image.Resampling.BICUBIC).transpose(Image.Transpose.ROTATE_90)
    large.getexif()[ExifTags.Base.Orientation] = 6
    large.save(tmp_path / "a.jpg", exif=large.getexif(), quality=95)
    seen = Laboratory.open(living).read((tmp_path / "a.jpg").read_bytes())
    small = Image.open(picture).resize((640, 640), Image.Resampling.BICUBIC)
    assert np.abs(seen.pixels.astype(int) - np.asarray(small)).mean() < 8, "turned upright, then shrunk"
    wanted = {unit: percent for unit, percent in ranked(living, seen).items() if percent >= LEAST_PERCENT}
    answer = openmaia.ask(living.files.root, pictures=[tmp_path / "a.jpg"])
    assert {each.row.unit: each.responses[0].percent for each in answer.units} == wanted != {}


def test_why_names_units_that_matter(living: Run, picture: Path, capsys: pytest.CaptureFixture[str]):
    answer = openmaia.ask(living.files.root, why=picture)
    assert answer.reasons is not None and answer.units
    assert [each.effect for each in answer.units] == sorted((each.effect or 0 for each in answer.units), reverse=True)
    show_answer(answer, 2)
    shown = capsys.readouterr().out
    assert f"predicted: {answer.reasons.predicted}" in shown and "units of output cannot be ablated" in shown
    with pytest.raises(UsageError, match="leave out question"):
        openmaia.ask(living.files.root, "boats", why=picture)


def test_file_that_is_no_image_is_refused(living: Run, tmp_path: Path):
    (tmp_path / "a.png").write_bytes(b"no image")
    for path, said in ((tmp_path / "a.png", "a.png is corrupt"), (tmp_path / "b.png", "cannot be read")):
        with pytest.raises(UsageError, match=said):
            openmaia.ask(living.files.root, pictures=[path])


def test_pictures_of_a_run_without_exemplars_are_refused(made: Run, picture: Path):
    with pytest.raises(UsageError, match="no exemplars of this run"):
        openmaia.ask(made.files.root, pictures=[picture])
