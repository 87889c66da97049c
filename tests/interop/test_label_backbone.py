"""Labels of other methods as claims: the backbone alone, and a whole run that is evaluated, reported and shown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.messages import Chat, system, user
from openmaia.core.units import Unit
from openmaia.interop import labels
from openmaia.interop.label_backbone import LabelBackbone
from openmaia.interop.labels import Label
from openmaia.runs.files import Files
from openmaia.runs.records import Stop
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.helpers.sweeping import sources
from tests.interop.published import history, prompts, result

TABLE = """\
layer,unit,description,method
mono,0,red,MILAN
mono,1,green,MILAN
mono,2,blue,MILAN
mono,0,blue,Guessing
mono,1,"red
[LABEL 2]: x",Guessing
blocks/1.mlp,3,a dog,MILAN
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text(TABLE)
    return path


def answer(backbone: LabelBackbone, conversation: str) -> str:
    chat = Chat(conversation=conversation, messages=[system("x"), user("y")], seed=0, max_tokens=1)
    return backbone.reply([chat])[0].text


def test_unit_gets_the_labels_of_the_method(table: Path):
    milan, guessing = (LabelBackbone(str(table), "net", method) for method in ("MILAN", "Guessing"))
    assert answer(milan, "net/mono/0/0") == "[DESCRIPTION]: red\n[LABEL 1]: red"
    assert answer(milan, "net/blocks/1.mlp/3/2") == "[DESCRIPTION]: a dog\n[LABEL 1]: a dog"
    assert answer(guessing, "net/mono/0/0").endswith("[LABEL 1]: blue")
    assert answer(guessing, "net/mono/1/0").count("\n") == 1, "a label stays on its line"
    assert answer(guessing, "net/mono/2/0") == "[DESCRIPTION]: NONE"


@pytest.mark.parametrize("named", ["", labels.NAME])
def test_imported_labels_are_read(tmp_path: Path, named: str):
    both = [Label(method="INVERT", target=net, layer="l", unit=7, labels=("crib", "bed")) for net in ("net", "other")]
    labels.add(Files(str(tmp_path)), both)
    backbone = LabelBackbone(str(tmp_path / named), "net", "INVERT")
    assert answer(backbone, "net/l/7/0") == "[DESCRIPTION]: crib; bed\n[LABEL 1]: crib\n[LABEL 2]: bed"


def test_description_of_an_agent_stands_beside_its_labels(tmp_path: Path):
    made = Label(method="gemma", target="net", layer="l", unit=7, labels=("cribs",), description="Beds\nof babies.")
    labels.add(Files(str(tmp_path)), [made])
    assert labels.read(Files(str(tmp_path))) == [made]
    assert answer(LabelBackbone(str(tmp_path), "net", "gemma"), "net/l/7/0") == (
        "[DESCRIPTION]: Beds of babies.\n[LABEL 1]: cribs"
    )


def test_method_or_target_without_labels_is_refused(table: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"no labels by CoSy of net \(.*\): Guessing of net, MILAN of net"):
        LabelBackbone(str(table), "net", "CoSy")
    (tmp_path / "broken.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"broken\.csv has no known format"):
        LabelBackbone(str(tmp_path / "broken.csv"), "net", "CoSy")
    with pytest.raises(UsageError, match=r"there is no .*nowhere/labels\.jsonl; give a table"):
        LabelBackbone(str(tmp_path / "nowhere"), "net", "CoSy")
    with pytest.raises(UsageError, match=r"leaves out backbone\.model"):
        load([str(REPOSITORY / "configs/closed-form.yaml"), "backbone.kind=labels", f"backbone.record={table}"])


@pytest.mark.slow
@pytest.mark.nightly
def test_imported_labels_and_histories_are_evaluated_and_reported(tmp_path: Path):
    """A table of one method, and a checkout of the published code with an agent's results: every command takes both as it takes runs
    of ours. Those of docs/from-maia.md are among them."""
    table = tmp_path / "labels.csv"
    table.write_text(TABLE.replace("blocks/1.mlp", "or"))
    for index, colour in enumerate(("red", "green", "blue")):
        said = json.dumps(history(f"[DESCRIPTION]: {colour} things\n[LABEL 1]: {colour}"))
        result(tmp_path / "maia" / "results" / "gemma" / "resnet152" / "mono" / str(index), history_json=said)
    prompts(tmp_path / "maia" / "prompts")
    done = run("import", str(tmp_path / "maia"), "--to", str(tmp_path / "in"), "--target", "closed_form")
    assert done.returncode == 0, done.stderr
    assert "answers by results/gemma on closed_form: 3" in done.stdout and "task.name=" in done.stdout
    found: dict[str, Run] = {}
    for name, record in (("gemma", tmp_path / "in"), ("Guessing", table)):
        method = "results/gemma" if name == "gemma" else name
        own = [f"backbone.record={record}", "backbone.kind=labels", f"backbone.model={method}", f"name={name}"]
        config = [*sources(tmp_path), *own, "units=mono=0,1,2", "evaluate.n=10"]
        done = run("run", *config)
        assert done.returncode == 0, done.stderr
        found[name] = Run.open(str(tmp_path / "runs" / name))
    units = [Unit(target="closed_form", layer="mono", index=index) for index in range(3)]
    ids = [InvestigationId(unit=unit, replicate=0) for unit in units]
    records = {method: [made.record(one) for one in ids] for method, made in found.items()}
    assert [one.stop for one in records["Guessing"]] == [Stop.ANSWER, Stop.ANSWER, Stop.ABSTAIN]
    assert {one.backbone for one in records["gemma"]} == {"results/gemma"}
    right, wrong = ([made.score(one) for one in ids] for made in found.values())
    assert all(score and score["auc"] > 0.9 for score in right)
    assert wrong[0] and wrong[0]["auc"] < 0.7
    assert wrong[1] and wrong[1]["auc"] is None, "words that the generator cannot draw are not tested"
    folders = [str(tmp_path / "runs" / method) for method in found]
    compared = " ".join(run("evaluate", *folders).stdout.split())
    assert "gemma" in compared and "Guessing" in compared and "AUC" in compared
    assert run("report", *folders).returncode == 0
    shown = [json.loads(line) for line in run("show", "--json", folders[0]).stdout.splitlines()]
    assert "red" in json.dumps(shown)
    assert run("export", "figures", *folders, "--to", str(tmp_path / "figures")).returncode == 0
    tables = {path.name: path.read_text() for path in (tmp_path / "figures").glob("*.csv")}
    for name in ("figure-2a.csv", "table-a3.csv"):
        assert "gemma" in tables[name] and "Guessing" in tables[name]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "openmaia.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=REPOSITORY)
