"""A damaged file costs its unit and nothing else: it is named, left out, and repeated on request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from openmaia.cli.commands.common import failure_lines, repeat_damaged
from openmaia.cli.main import app
from openmaia.core.errors import StoreError, UsageError
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.damage import damaged_files
from openmaia.evaluation.run import evaluate_run
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.runs import tables
from openmaia.runs.facts import wrong_score
from openmaia.runs.lease import take
from openmaia.runs.results import SIGNIFICANCE
from openmaia.runs.run import EVALUATION, InvestigationId, Run
from openmaia.runs.summary import wrong_key
from tests.evaluation.conftest import generator, services  # pyright: ignore[reportUnusedImport] # noqa: F401
from tests.evaluation.test_run import GREEN, RED, STRIPES, make_run
from tests.helpers.permissions import obeyed_permissions
from tests.helpers.samples import turn

Damage = Callable[[Path], None]
FIRST = InvestigationId(unit=RED, replicate=0)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    path.write_bytes(b"something else")


def other_version(path: Path) -> None:
    rows, header = tables.load(path.read_bytes())
    path.write_bytes(tables.dump(rows, None, header | {"version": 99}))


def with_header(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(path: Path) -> None:
        rows, header = tables.load(path.read_bytes())
        path.write_bytes(tables.dump(rows, None, change(header)))

    return damage


def with_summary(change: dict[str, Any]) -> Damage:
    return with_header(lambda header: header | {"summary": header["summary"] | change})


OTHER_SHAPES: list[dict[str, Any]] = [
    {"labels": [1]},
    {"labels": "red"},
    {"index": "0"},
    {"seconds": None},
    {"spent": {"target": 3}},
    {"spent": {"target": {"requests": 1}}},
    {"spent": {"target": {"requests": 1, "seconds": 1.0, "gpu_seconds": 0.0, "watts": 1.0}}},
    {"spent": {"target": {"requests": 1, "seconds": None, "gpu_seconds": 0.0}}},
    {"tools": []},
    {"tools": {"call_neuron": "two"}},
    {"confirm_auc": "high"},
]

DAMAGES = [truncate, empty, overwrite, other_version]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, services: EvaluationServices) -> Run:  # noqa: F811
    """A run whose three units are evaluated."""
    run = make_run(tmp_path_factory.mktemp("whole"), {RED: ("red",), GREEN: ("green",), STRIPES: ("stripes",)})
    evaluate_run(run, services, EvaluationDesign(n=2, random_words=2))
    return run


@pytest.fixture
def run(whole: Run, tmp_path: Path) -> Run:
    import shutil

    shutil.copytree(whole.files.root, tmp_path / "demo")
    return Run.open(str(tmp_path / "demo"))


def path(run: Run, folder: str, suffix: str = "parquet") -> Path:
    return Path(run.files.path(f"{folder}/{FIRST.path}.{suffix}"))


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("folder", ["records", EVALUATION])
def test_damaged_file_is_named_and_left_out(run: Run, folder: str, damage: Damage):
    damage(path(run, folder))
    for command in (["show", run.files.root], ["report", run.files.root]):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        assert f"damaged: {folder}/{FIRST.path}.parquet: " in result.stderr
        assert "--repeat-damaged" in result.stderr
    assert [each.name for each in damaged_files(run)] == [f"{folder}/{FIRST.path}.parquet"]
    assert len(run.headers()) == (2 if folder == "records" else 3)
    assert run_scores(run, 50).units == 2, "nobody knows what the test of a damaged record is about"


@pytest.mark.parametrize("change", OTHER_SHAPES, ids=str)
def test_summary_of_another_shape_is_damage(run: Run, change: dict[str, Any]):
    with_summary(change)(path(run, "records"))
    result = invoke("show", run.files.root)
    assert f"damaged: records/{FIRST.path}.parquet: " in result.stderr
    assert repr(next(iter(change))) in result.stderr
    assert len(run.headers()) == 2


@pytest.mark.parametrize(
    ("key", "is_missing"),
    [
        *(
            (key, False)
            for key in ("claim", "trial", "location", "scale", "detection", "overlap", "facts", "metrics", "controls")
        ),
        *((key, True) for key in ("claim", "trial", "location", "scale", "detection", "overlap")),
    ],
)
def test_header_of_an_evaluation_with_another_shape_is_damage(run: Run, key: str, is_missing: bool):
    left = [key] if is_missing else []
    with_header(lambda header: {k: v for k, v in (header | {key: [1]}).items() if k not in left})(path(run, EVALUATION))
    result = invoke("show", run.files.root)
    assert f"damaged: {EVALUATION}/{FIRST.path}.parquet: " in result.stderr
    assert repr(key) in result.stderr
    assert run_scores(run, 50).units == 2


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"auc": "0.9"}}, {"facts": {"n": [1, "2"]}}, {"facts": {"others": 3}},
        {"controls": {"auc": {"auc": 0.9}}}, {"facts": {"by_label": {"red": []}}}, {"facts": {"detection": ["auprc"]}},
        {"facts": {"worst_label": 1}}, {"facts": {"outcome": None}}, {"facts": {"units": "many"}}, {"facts": {"n": []}},
        *(
            {"controls": {"auc": {"auc": 0.9, "low": 0.8, "high": 1.0, "n": n, "prompts": prompts}}}
            for n, prompts in (([], []), ([1], [50, 50]), ([9, 9], ["a", "b"]))
        ),
    ],
    ids=str,
)  # fmt: skip
def test_score_of_another_shape_costs_its_unit_alone(run: Run, change: dict[str, Any]):
    [(part, values)] = change.items()
    with_header(lambda header: header | {part: header[part] | values})(path(run, EVALUATION))
    result = invoke("show", run.files.root)
    assert f"damaged: {EVALUATION}/{FIRST.path}.parquet: " in result.stderr
    assert f"{part}.{next(iter(values))}" in result.stderr
    assert run.score(FIRST) is None
    assert run_scores(run, 50).units == 2


@pytest.mark.parametrize("key", ["claim", "facts"])
def test_page_of_a_damaged_evaluation_shows_the_conversation(run: Run, key: str):
    with_header(lambda header: header | {key: [1]})(path(run, EVALUATION))
    assert invoke("report", run.files.root).exit_code == 0
    pages = [each.read_text() for each in Path(run.files.root).glob("report/**/*.html")]
    page = next(each for each in pages if "The test of this description cannot be shown" in each)
    assert 'id="conversation"' in page and repr(key).replace("'", "&#39;") in page


def test_label_that_is_no_text_in_an_evaluation_costs_its_unit_alone(run: Run):
    with_header(lambda header: header | {"claim": header["claim"] | {"labels": [7]}})(path(run, EVALUATION))
    for command in ("show", "report"):
        result = invoke(command, run.files.root)
        assert result.exit_code == 0 and f"damaged: {EVALUATION}/{FIRST.path}.parquet: " in result.stderr
    assert run_scores(run, 50).units == 2


@pytest.mark.parametrize("folder", ["records", EVALUATION])
def test_header_that_is_no_object_is_damage(run: Run, folder: str):
    with_header(lambda header: [header])(path(run, folder))
    result = invoke("show", run.files.root)
    assert f"damaged: {folder}/{FIRST.path}.parquet: " in result.stderr


def test_each_fact_is_needed_and_no_metric(run: Run):
    [(_, header)] = run.evaluation_headers([FIRST])
    facts, metrics = header["facts"], header["metrics"]
    for key in facts:
        without = {name: value for name, value in facts.items() if name != key}
        assert wrong_score(header | {"facts": without}) == f"facts.{key}"
    for key in metrics:
        without = {name: value for name, value in metrics.items() if name != key}
        assert wrong_score(header | {"metrics": without}) is None


def test_each_key_of_a_summary_is_needed(run: Run):
    row = run.summary(FIRST)
    assert row is not None and wrong_key(row) is None
    for key in row:
        assert wrong_key({other: value for other, value in row.items() if other != key}) == key


@pytest.mark.parametrize("damage", [truncate, other_version])
def test_other_commands_go_on_without_a_damaged_record(run: Run, tmp_path: Path, damage: Damage):
    damage(path(run, "records"))
    root = run.files.root
    assert '"stop": "damaged"' in invoke("show", root, "--json").output
    assert invoke("show", root, "--agents").exit_code == 0
    assert "trace of 2 investigations" in invoke("export", "trace", root).output
    assert invoke("export", "figures", root, "--to", str(tmp_path / "figures")).exit_code == 0
    assert "2 investigations" in invoke("export", "maia", root, "--to", str(tmp_path / "published")).output


def test_figures_are_made_without_a_damaged_summary(run: Run, tmp_path: Path):
    with_summary({"labels": [1]})(path(run, "records"))
    assert invoke("export", "figures", run.files.root, "--to", str(tmp_path / "figures")).exit_code == 0


def test_set_aside_record_is_pending_again(run: Run):
    truncate(path(run, "records"))
    assert run.pending() == []
    repeat_damaged(run, records=True)
    assert run.pending() == [FIRST]
    assert run.evaluated() == run.done() == {InvestigationId(unit=unit, replicate=0) for unit in (GREEN, STRIPES)}
    kept = {each.removeprefix("damaged/").split("/")[0] for each in run.files.names("damaged")}
    assert kept == {"records", EVALUATION}
    assert damaged_files(run) == []


def test_set_aside_evaluation_is_made_again(run: Run, services: EvaluationServices):  # noqa: F811
    before = run.scores()
    truncate(path(run, EVALUATION))
    repeat_damaged(run, records=False)
    assert FIRST not in run.evaluated() and FIRST in run.done()
    evaluate_run(run, services, EvaluationDesign(n=2, random_words=2))
    assert run.scores() == before


def test_evaluation_does_not_set_records_aside(run: Run):
    truncate(path(run, "records"))
    repeat_damaged(run, records=False)
    assert [each.is_record for each in damaged_files(run)] == [True]


def test_damaged_files_of_a_driven_run_stay(run: Run):
    truncate(path(run, "records"))
    lease = take(run.investigations)
    with pytest.raises(UsageError, match="being driven by another command"):
        repeat_damaged(run, records=True)
    lease.release()
    assert len(damaged_files(run)) == 1


@pytest.mark.parametrize("damage", [truncate, empty, overwrite])
def test_damaged_turn_ends_the_journal_before_it(run: Run, damage: Damage):
    journal = run.journal(FIRST)
    for index in range(3):
        journal.append(turn(index))
    damage(Path(run.files.path(f"journal/{FIRST.path}/0001.turn")))
    assert [each.index for each in journal.turns()] == [0]
    assert "turn 2 of the journal was damaged" in journal.damage(1)
    journal.clear()
    assert journal.damage(0) == ""


DERIVED = ("evaluation.json", "reliability.json", "report/pages.json", "progress.json", "driver.json", SIGNIFICANCE)


@pytest.mark.parametrize("data", [b"{", b"[]"])
def test_damaged_derived_files_are_made_again(run: Run, data: bytes):
    for name in DERIVED:
        run.files.write(name, data)
    for command in ("show", "report"):
        result = invoke(command, run.files.root)
        assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("name", ["plan.json", "config.yaml"])
@pytest.mark.parametrize("text", ["3", "[1]", "[[1, 2, 3, 4]]", '{"units": 3}', '[["t", "l", 0, ["x"]]]', '"text"'])
def test_plan_and_config_of_another_shape_are_named(run: Run, name: str, text: str):
    run.files.write(name, text.encode())
    for command in ("show", "report"):
        result = CliRunner().invoke(app, [command, run.files.root])
        assert isinstance(result.exception, StoreError)
        assert f"{name} is damaged" in result.exception.message


def test_files_of_other_programs_are_ignored(run: Run):
    before = run.done(), run.evaluated(), run.headers()
    for folder in ("records", EVALUATION, "failures", "journal", "trials", f"records/{RED.target}/{RED.layer}"):
        for name in ("Thumbs.db", "notes.txt", "0-0 (copy).parquet"):
            run.files.write(f"{folder}/{name}", path(run, "records").read_bytes())
    run.files.write("evaluations/a copy%/config.yaml", b"")
    assert (run.done(), run.evaluated(), run.headers()) == before
    for command in ("show", "report"):
        result = invoke(command, run.files.root)
        assert (result.exit_code, result.stderr) == (0, "")


def test_run_that_may_only_be_read_is_shown(run: Run):
    folders = [Path(run.files.root), *(each for each in Path(run.files.root).rglob("*") if each.is_dir())]
    Path(run.files.path("evaluation.json")).unlink(missing_ok=True)
    for folder in folders:
        folder.chmod(0o500)
    with obeyed_permissions():
        result = invoke("show", run.files.root)
    for folder in folders:
        folder.chmod(0o700)
    assert (result.exit_code, result.stderr) == (0, "")
    assert not run.files.exists("evaluation.json")


def test_equal_causes_are_named_once():
    causes = {f"net/layer4/{n}": f"ServiceError: net/layer4/{n} got no answer\nmore" for n in range(18)}
    lines = list(failure_lines(causes | {"net/layer4/99": "SandboxError: \x1b[31mred"}))
    assert lines == [
        "failed: 18 investigations, such as net/layer4/0: ServiceError: it got no answer",
        "failed: net/layer4/99: SandboxError:  [31mred",
    ]
