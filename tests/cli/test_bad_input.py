"""Bad input to every command: one message that says what was given and what to do, before Ray starts, in seconds."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from tests.conftest import REPOSITORY
from tests.helpers.commands import refused
from tests.helpers.sweeping import pictures

DEMO = str(REPOSITORY / "configs/efficientnet-lite0.yaml")
CLOSED = str(REPOSITORY / "configs/closed-form.yaml")
SERVED = ["backbone.kind=openai", "backbone.model=m", "backbone.base_url=http://127.0.0.1:9/v1"]
PAPERS = str(REPOSITORY / "configs/papers.yaml")
# -- commands and options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("rnu configs/efficientnet-lite0.yaml", "No such command 'rnu'.*run"),
        ("run --frobnicate", "No such option"),
        ("run", "Missing argument 'CONFIG'"),
        ("config", "Missing argument"),
        ("config --layers", "Missing argument"),
        ("show", "Missing argument 'RUN'"),
        ("report", "Missing argument 'RUN'"),
        ("investigate configs/efficientnet-lite0.yaml", "Missing option '--unit'"),
        ("export maia runs/demo", "Missing option '--to'"),
        ("export runs/demo", "No such command 'runs/demo'"),
        ("trace runs/demo", "No such command 'trace'.*'export trace'"),
        ("export-maia runs/demo", "No such command 'export-maia'.*'export maia'"),
        ("layers configs/efficientnet-lite0.yaml", "No such command 'layers'"),
        ("submit lsf configs/efficientnet-lite0.yaml", "No such command 'lsf'"),
        ("pools around configs/efficientnet-lite0.yaml", "No such command 'around'"),
        ("show runs/none --watch=yes", "does not take a value"),
    ],
)
def test_malformed_command_is_explained(arguments: str, said: str):
    assert re.search(said, refused(*arguments.split()))


@pytest.mark.parametrize(
    "command",
    [
        *("show", "show --json", "show --agents", "show --watch", "view", "report", "evaluate"),
        *("export trace", "export otel", "export figures", "export dashboard"),
    ],
)
@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_path_that_is_no_run_is_named(tmp_path: Path, command: str, kind: str):
    path = tmp_path / "some"
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("x")
    message = refused(*command.split(), str(path))
    assert str(path) in message and "runs/demo" in message


@pytest.mark.parametrize(
    "command",
    ["run", "investigate --unit mono=0", "exemplars", "study ablate", "study bias", "study spurious", "config"],
)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere.yaml", "config 'nowhere.yaml' is neither a file nor key=value"),
        ("targt.name=x", "unknown key 'targt.name'; did you mean 'target.name'"),
        ("backbone.kind=oracle", "backbone.kind='oracle' is not known; expected scripted, searcher, replay"),
        ("limits.turns=many", "limits.turns"),
    ],
)
def test_every_command_refuses_a_wrong_config(command: str, given: str, said: str):
    assert said in refused(*command.split(), CLOSED, given)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", CLOSED, "--gpus", "8"], "--gpus 8 is for --estimate"),
        (["run", CLOSED, "--rates", "x"], "--rates x is for --estimate"),
        (["run", CLOSED, "--units", "8"], "--units 8 is for --estimate"),
        (["run", CLOSED, "--estimate", "--gpus", "many"], "--gpus 'many': expected whole numbers"),
        (["run", CLOSED, "--estimate", "--gpus", "0"], "--gpus '0': expected whole numbers from 1 to 1000000"),
        (["run", CLOSED, "--estimate", "--gpus", "9999999999"], "expected whole numbers from 1 to 1000000"),
        (["run", CLOSED, "replicates=99999999"], "replicates=99999999 is out of range; give a value of at most 10000"),
        (["run", CLOSED, "job.hours=.inf"], "job.hours=inf is out of range; give a value that is finite"),
        (["run", CLOSED, "paths.cache=~nobody-here/x"], "paths.cache='~nobody-here/x' is no path"),
        (["show", "~nobody-here/x"], "'~nobody-here/x' is no path"),
        (
            ["export", "maia", "runs/x", "--to", "s3://bucket/x"],
            "s3://bucket/x is a URL; give a folder of this machine",
        ),
        (["run", CLOSED, "--estimate", "--units", "8,,9"], "--units '8,,9': expected whole numbers"),
        (["run", CLOSED, "--estimate", "--units", "9", "--rates", "nowhere"], "nowhere"),
        (["run", PAPERS, PAPERS], "both name sweeps"),
        (["config", PAPERS, "--layers"], "names several sweeps"),
        (["config", CLOSED, "--layers", "--given"], "--given is for the printed config"),
        (["run", CLOSED, "units=mono=99"], "has units 0 to 5"),
        (["run", CLOSED, "units=nor=1"], "unknown layer 'nor' of closed_form; did you mean 'or'"),
        (["run", CLOSED, "units=mono=3-1"], "runs backwards"),
        (["run", CLOSED, "units=mono=x"], "is no index"),
        (["run", CLOSED, "units=mono"], "has no '='"),
        (["run", CLOSED, "task.name=explain"], "task.name='explain' is neither a task"),
        (["run", CLOSED, *SERVED, "tools=['os:sep']"], "'os:sep' is no function"),
        (["run", CLOSED, "paths.runs=ftp://x/y"], "cannot be used for files"),
        (["run", CLOSED, "paths.runs=/proc/openmaia"], "cannot be written"),
        (["investigate", CLOSED, "--unit", "mono=0-2"], "names 3 units; give one, such as mono=0"),
        (["investigate", CLOSED, "--unit", "mono=77"], "has units 0 to 5"),
        (["study", "ablate", CLOSED, "--sets", "all"], "'all' is unknown or named twice"),
        (["study", "ablate", CLOSED, "--sets", "exemplars-only"], "the other tool sets are compared with 'full'"),
        (["study", "ablate", CLOSED, "--sets", "full,other-generator"], "--other"),
        (["study", "ablate", CLOSED, "--other", "seed=3"], "expected another generator and nothing else"),
        (["study", "ablate", CLOSED, "without=[edit_images]"], "an ablation leaves tools out itself"),
        (["study", "bias", CLOSED], "has no classes"),
        (["study", "bias", DEMO], "biases are those of classes"),
        (["evaluate", "runs/x", "--2afc-judge", "--2afc-page", "p.html"], "give one of them at a time"),
        (["evaluate", "evaluate.n=3"], "no run directory was given"),
        (["evaluate", "runs/x", "--as", "n3", "--2afc-judge"], "is not for the forced choices"),
        (["submit", "slurm", CLOSED, "units=mono=99", "--dry-run"], "has units 0 to 5"),
        (["submit", "kuberay", CLOSED, "paths.runs=/nowhere", "--dry-run"], "paths.runs='/nowhere'"),
        (["import", "/nowhere"], "/nowhere"),
        (["export", "maia", "/nowhere", "--to", "to"], "/nowhere"),
        (["doctor", "nowhere.yaml"], "neither a file nor key=value"),
        (["doctor", "nowhere.yaml", "--download"], "neither a file nor key=value"),
        (["doctor", "--download"], "give a config"),
        (["pools", "up", CLOSED], "ray.address=local starts a cluster that ends with the command"),
    ],
    ids=lambda value: " ".join(Path(part).name for part in value) if isinstance(value, list) else "",
)
def test_contradiction_is_explained(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert said in refused(*arguments)


# -- files of the user ---------------------------------------------------------------------------------------------------


def broken_image(folder: Path) -> None:
    Image.new("RGB", (40, 40)).save(folder / "a.png")
    (folder / "a.png").write_bytes((folder / "a.png").read_bytes()[:40])


PICTURES: dict[str, Callable[[Path], None]] = {
    "empty": lambda folder: None,
    "texts": lambda folder: (folder / "notes.txt").write_text("x") and None,
    "broken": broken_image,
    "no image": lambda folder: (folder / "a.jpg").write_bytes(b"GIF, not JPEG") and None,
    "empty file": lambda folder: (folder / "a.png").write_bytes(b"") and None,
    "loop": lambda folder: (folder / "loop.png").symlink_to(folder / "loop.png"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_folder_without_usable_pictures_is_named(tmp_path: Path, kind: str):
    folder = tmp_path / "pictures"
    folder.mkdir()
    PICTURES[kind](folder)
    message = refused(
        "investigate", CLOSED, "pictures.kind=folder", f"pictures.folder={folder}", "--unit", "mono=0",
        f"paths.runs={tmp_path}/runs", f"paths.exemplars={tmp_path}/exemplars",
    )  # fmt: skip
    assert str(folder) in message and "holds no usable image" in message


class Trap:
    def __reduce__(self):
        return print, ("code in a checkpoint",)


def truncated_weights(path: Path) -> None:
    save_file({"w": np.zeros(9)}, path)
    path.write_bytes(path.read_bytes()[:30])


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: path.write_text("no checkpoint") and None,
    "empty": lambda path: path.write_bytes(b"") and None,
    "truncated": truncated_weights,
    "other network": lambda path: save_file({"w": np.zeros(9, np.float32)}, path),
    "code": lambda path: path.write_bytes(pickle.dumps(Trap())) and None,
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_unusable_checkpoint_is_named(tmp_path: Path, kind: str, suffix: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / f"weights.{suffix}"
    CHECKPOINTS[kind](path)
    message = refused("investigate", DEMO, f"target.weights={path}", "--unit", "_conv_head=0", f"paths.runs={tmp_path}")
    assert str(path) in message
    assert "code in a checkpoint" not in capsys.readouterr().out


REPLIES: dict[str, str] = {
    "empty": "",
    "no JSON": "{",
    "no list": '{"role": "assistant"}',
    "numbers": "[1, 2]",
    "no Parquet": "PAR1",
}


@pytest.mark.parametrize("kind", REPLIES)
def test_unusable_record_to_replay_is_named(tmp_path: Path, kind: str):
    path = tmp_path / ("record.parquet" if kind == "no Parquet" else "history.json")
    path.write_text(REPLIES[kind])
    message = refused(
        "investigate", CLOSED, "backbone.kind=replay", f"backbone.record={path}", "--unit", "mono=0", "exemplars.k=2",
        "pictures.kind=folder", f"pictures.folder={pictures(tmp_path / 'pictures')}",
        f"paths.runs={tmp_path}/runs", f"paths.exemplars={tmp_path}/exemplars",
    )  # fmt: skip
    assert str(path) in message


@pytest.mark.parametrize("text", ["", "[", "[1]", '{"mono": 3}', '{"mono": ["a"]}', '{"mono": []}', '{"x": [1]}'])
def test_unusable_list_of_units_is_named(tmp_path: Path, text: str):
    path = tmp_path / "units.json"
    path.write_text(text)
    message = refused("run", CLOSED, f"units={path}")
    assert str(path) in message or "unknown layer 'x'" in message


@pytest.mark.parametrize("answers", ["", "[", "{}", json.dumps({"page": "abc", "answers": []})])
def test_unusable_answers_of_a_forced_choice_are_named(tmp_path: Path, answers: str):
    from tests.evaluation.test_run import RED, make_run

    run, path = make_run(tmp_path, {RED: ("red",)}), tmp_path / "answers.json"
    path.write_text(answers)
    message = refused("evaluate", run.files.root, "--2afc-answers", str(path))
    assert path.name in message or run.files.root in message


@pytest.mark.parametrize("text", ["", "{", "[]", "nothing published"])
def test_folder_without_published_files_is_named(tmp_path: Path, text: str):
    (tmp_path / "some.json").write_text(text)
    assert str(tmp_path) in refused("import", str(tmp_path), "--to", str(tmp_path / "to"))


@pytest.mark.parametrize("task", ["scope: planet", "answer: {choices: 3}", "evidence: {experiments: many}", "[", "- a"])
def test_unusable_task_is_named(tmp_path: Path, task: str):
    (tmp_path / "user.md").write_text("What is it?")
    (tmp_path / "task.yaml").write_text(task)
    assert "task.yaml" in refused("run", CLOSED, *SERVED, f"task.name={tmp_path}")
