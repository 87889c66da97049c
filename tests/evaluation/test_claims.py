"""Claims of other methods: tables that are read, rows that are refused, and methods that are tested on the run's images."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from openmaia.assembly.claims import store_claims
from openmaia.cli.commands.evaluate import evaluate
from openmaia.cli.commands.exports import figures
from openmaia.cli.commands.results import report, show
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.units import TargetInfo, Unit
from openmaia.evaluation.storage import StoredTrials
from openmaia.evaluation.trials import Trial
from openmaia.interop import labels
from openmaia.interop.claim_files import read_claim_file
from openmaia.interop.labels import Label
from openmaia.runs.claimed import claim_record, claim_runs
from openmaia.runs.files import Files
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.sweeping import sources

INFO = TargetInfo(name="closed_form", layers={"mono": 12, "or": 3}, digest="", input_size=(224, 224))
HEADER = "layer,unit,method,description"
METHODS = f"""{HEADER},labels
mono,0,MILAN,red things,red
mono,1,MILAN,green things,green
mono,2,MILAN,blue things,blue
mono,0,Guessing,,blue
mono,1,Guessing,,red; blue
mono,2,Guessing,,green
mono,0,=1+1 <b>,a red square,
mono,1,=1+1 <b>,a green square,
mono,5,=1+1 <b>,a blue square,
"""


def table(folder: Path, text: str) -> str:
    path = folder / "claims.csv"
    path.write_text(text)
    return str(path)


def unit(index: int) -> Unit:
    return Unit(target="closed_form", layer="mono", index=index)


def test_table_holds_descriptions_and_labels_of_methods(tmp_path: Path):
    found = read_claim_file(table(tmp_path, METHODS), INFO)
    assert [(each.method, each.unit.index) for each in found[:4]] == [("MILAN", 0), ("MILAN", 1), ("MILAN", 2), ("Guessing", 0)]  # fmt: skip
    assert (found[0].description, found[0].labels) == ("red things", ("red",))
    assert (found[4].description, found[4].labels) == ("red; blue", ("red", "blue"))
    assert (found[6].description, found[6].labels) == ("a red square", ("a red square",))


def test_published_tables_and_imported_labels_are_claims(tmp_path: Path):
    dissected = "layer,unit,description,similarity\nmono,3,stripes,0.2\n"
    (found,) = read_claim_file(table(tmp_path, dissected), INFO)
    assert (found.method, found.unit, found.labels) == ("CLIP-Dissect", unit(3), ("stripes",))
    imported = [
        Label(method="INVERT", target=net, layer="or", unit=2, labels=("a", "b")) for net in ("closed_form", "x")
    ]
    labels.add(Files(str(tmp_path)), imported)
    (found,) = read_claim_file(str(tmp_path), INFO)
    assert (found.method, found.description, found.labels) == ("INVERT", "a; b", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\nmano,0,A,red\n", r"row 2: unknown layer 'mano' of closed_form; did you mean 'mono'"),
        (f"{HEADER}\nmono,0,A,red\nmono,12,A,red\n", r"row 3: layer mono of closed_form has no unit 12; its units are 0 to 11"),
        (f"{HEADER}\nmono,x,A,red\n", r"row 2: unit 'x' is no index"),
        (f"{HEADER}\nmono,-1,A,red\n", r"row 2: unit '-1' is no index"),
        (f"{HEADER}\nmono,0,A, \n", r"row 2: the description is empty"),
        (f"{HEADER}\nmono,0,,red\n", r"row 2: the method is empty"),
        (f"{HEADER}\nmono,0,A,red\nmono,1,A,red\nmono,0,A,blue\n", r"row 4: A describes mono/0 a second time, after .*row 2"),
        ("layer,unit,description\nmono,0,red\n", r"lacks the column method"),
        ("layer,method,description\nmono,A,red\n", r"lacks the column unit; it has description, layer, method"),
        ("layer,unit,method\nmono,0,A\n", r"lacks a column description or labels"),
        ("a,b\n1,2\n", r"no known format .*; expected the columns layer, unit, method, and description or labels"),
        (f"{HEADER}\n", r"holds no description of a unit of closed_form|no label below it"),
        ("", r"no known format"),
    ],
)  # fmt: skip
def test_bad_table_is_refused_with_its_row(tmp_path: Path, text: str, message: str):
    with pytest.raises(UsageError, match=message):
        read_claim_file(table(tmp_path, text), INFO)
    with pytest.raises(UsageError, match=r"missing\.csv cannot be read \(there is no such file\)"):
        read_claim_file(str(tmp_path / "missing.csv"), INFO)


def make_run(folder: Path, name: str, said: Sequence[str], target: str = "closed_form") -> Run:
    made = Run.create(
        load(
            [
                *sources(folder),
                f"name={name}",
                f"target.name={target}",
                "evaluate.n=4",
                "evaluate.bootstrap=100",
                "evaluate.random_words=2",
            ]
        )
    )
    units = [Unit(target=target, layer="mono", index=index) for index in range(len(said))]
    made.set_plan(units, 1)
    for each, text in zip(units, said, strict=True):
        made.publish(claim_record(made, each, name, text, (text,)))
    return made


def test_claims_are_stored_once_and_never_replaced(tmp_path: Path):
    run = make_run(tmp_path, "agent", ["red", "green", "blue"])
    methods, sentence = store_claims(run, [table(tmp_path, METHODS)], INFO)
    assert sentence == "8 claims of =1+1 <b>, Guessing, MILAN; 1 about other units are left out"
    assert {each.files.root for each in methods} == {each.files.root for each in claim_runs(run)}
    milan = next(each for each in methods if each.name == "MILAN")
    assert milan.record(InvestigationId(unit=unit(1), replicate=0)).labels == ("green",)
    assert [each.unit.index for each in milan.plan()] == [0, 1, 2]
    assert Path(str(run.files.local)) in [Path(str(each.files.local)).parent.parent for each in methods]
    assert len(store_claims(run, [table(tmp_path, METHODS)], INFO)[0]) == 3
    with pytest.raises(UsageError, match=r"holds another description of closed_form/mono/0, 'red things'"):
        store_claims(run, [table(tmp_path, METHODS.replace("red things", "rod things"))], INFO)
    with pytest.raises(UsageError, match=r"A says nothing about the 3 units .* such as closed_form/mono/0"):
        store_claims(run, [table(tmp_path, f"{HEADER}\nor,0,A,red\n")], INFO)


def test_another_run_is_a_method_unless_its_target_differs(tmp_path: Path):
    run, person = make_run(tmp_path, "agent", ["red", "green"]), make_run(tmp_path, "agent-human", ["a rose", "grass"])
    (method,), _ = store_claims(run, [str(person.files.local)], INFO)
    assert method.name == "agent-human"
    assert [each.description for each in method.records()] == ["a rose", "grass"]
    foreign = make_run(tmp_path, "foreign", ["red"], target="other")
    with pytest.raises(UsageError, match=r"is a run about another target than"):
        store_claims(run, [str(foreign.files.local)], INFO)


@pytest.mark.slow
def test_methods_are_tested_on_the_images_of_the_run_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path, "agent", ["red", "green", "blue"])
    root = str(run.files.local)
    evaluate([root], claims=[table(tmp_path, METHODS)])
    printed = capsys.readouterr().out
    assert "agent minus MILAN: 3 units in both" in printed and "as in Table A3" in printed
    methods = {each.name: each for each in claim_runs(run)}
    trials = {name: {each.claim.unit: each for each in StoredTrials(made)} for name, made in methods.items()}
    own = {each.claim.unit: each for each in StoredTrials(run)}
    assert {
        images(trials["MILAN"][unit(0)], role) == images(own[unit(0)], role) for role in ("random", "unrelated")
    } == {True}
    assert images(trials["MILAN"][unit(0)], "positive") == images(own[unit(0)], "positive"), "both say red"
    right, wrong = (methods[name].scores() for name in ("MILAN", "Guessing"))
    for index in range(3):
        which = InvestigationId(unit=unit(index), replicate=0)
        assert right[which]["auc"] > 0.9 > wrong[which]["auc"]
    before = {name: made.scores() for name, made in methods.items()}
    evaluate([root], claims=[table(tmp_path, METHODS)])
    assert {each.name: each.scores() for each in claim_runs(run)} == before
    capsys.readouterr()
    show(root)
    assert "MILAN minus" in capsys.readouterr().out.replace("Guessing minus MILAN", "MILAN minus")
    figures([root], to=str(tmp_path / "figures"))
    rows = list(csv.DictReader((tmp_path / "figures" / "differences.csv").read_text().splitlines()))
    assert len({(row["one"], row["other"]) for row in rows}) == 6, "every pair of the agent and three methods"
    auc = next(
        r for r in rows if r["measure"] == "AUC, both tested" and {r["one"], r["other"]} == {"Guessing", "MILAN"}
    )
    assert float(auc["units"]) == 3 and abs(float(auc["difference"])) > 0.1
    assert {row["name"].split(",")[0] for row in csv.DictReader((tmp_path / "figures" / "table-a3.csv").read_text().splitlines())} >= {"MILAN", "Guessing"}  # fmt: skip
    assert r"\toprule" in (tmp_path / "figures" / "differences.tex").read_text()
    report([root])
    page = (Path(root) / "report" / "papers.html").read_text()
    assert "agent: MILAN" in page and "<b>" not in page and (Path(root) / "report/papers/differences.tex").exists()


def images(trial: Trial, role: str) -> list[str]:
    return [trial.stimuli[row].digest for row in trial.rows(role)]
