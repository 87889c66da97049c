"""A metric is a file: one that is added is stored, shown and judged, and evaluations from before lack it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openmaia.cli.terminal.scores import show_scores
from openmaia.evaluation import metrics
from openmaia.evaluation.analysis.sanity import judged_metrics, warning
from openmaia.evaluation.analysis.verdict import run_verdicts, score_columns, write_summary
from openmaia.evaluation.metric import all_metrics
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.tracking.rows import make_cells, table_columns
from openmaia.runs import tables
from openmaia.runs.run import Run
from tests.reporting.making import Page, run, table

NAME, TITLE = "counted", "images that count"

FILE = f'''"""The number of positive images that count."""

from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import Metric


def _count(evaluation: Evaluation) -> float:
    return float(len(evaluation.group("positive").values))


COUNTED = Metric(
    name="{NAME}",
    title="{TITLE}",
    hint="Positive images without those that do not show what was requested",
    compute=_count,
)
'''


@contextmanager
def added(folder: Path) -> Iterator[None]:
    """Adds FILE to the folder of metrics, as if it stood there."""
    (folder / f"{NAME}.py").write_text(FILE)
    metrics.__path__.append(str(folder))
    all_metrics.cache_clear()
    try:
        yield
    finally:
        metrics.__path__.remove(str(folder))
        sys.modules.pop(f"{metrics.__name__}.{NAME}", None)
        all_metrics.cache_clear()


def values(made: Run) -> list[float | None]:
    """The metric in everything that shows a row for each unit: summary.parquet, the browser and W&B, in this order."""
    write_summary(made)
    stored = [row[NAME] for row in tables.load(made.files.read("summary.parquet") or b"")[0]]
    shown, _ = table(write_report([made]))
    place, scores = table_columns().index(NAME), list(made.scores().values())
    tracked = [make_cells(row, each, None)[place] for row, each in zip(made.headers(), scores, strict=False)]
    return [*stored[:2], *shown[NAME][:2], *tracked]


def page(made: Run) -> str:
    [found] = Path(made.files.path("report/units")).rglob("0-0.html")
    return " ".join(Page(found.read_text()).text.split())


def test_added_metric_is_shown_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert len(FILE.splitlines()) <= 20
    with added(tmp_path):
        made = run(tmp_path / "runs")
        assert values(made) == [2.0] * 6
        assert f"{TITLE} 2" in page(made)
        show_scores(made, 50)
        line = next(each for each in capsys.readouterr().out.splitlines() if TITLE in each)
        assert "2.000" in line
        assert NAME in judged_metrics()
        assert warning(NAME) == "not put to the sanity tests"
    assert NAME not in {*all_metrics(), *score_columns()}


def test_evaluations_from_before_a_metric_lack_it_and_count(tmp_path: Path):
    made = run(tmp_path / "runs")
    before = run_verdicts(made)
    with added(tmp_path):
        assert run_verdicts(made) == before
        assert len(made.evaluated()) == 2
        assert values(made) == [None] * 6
        assert TITLE not in page(made)


def test_metric_that_is_gone_is_still_read(tmp_path: Path):
    with added(tmp_path):
        made = run(tmp_path / "runs")
    assert [scores[NAME] for scores in made.scores().values()] == [2.0] * 2
    assert NAME not in table(write_report([made]))[0]


def test_two_metrics_of_one_name_are_refused(tmp_path: Path):
    with added(tmp_path):
        (tmp_path / "again.py").write_text(FILE)
        all_metrics.cache_clear()
        with pytest.raises(ValueError, match=f"two metrics have one name.*{NAME}"):
            all_metrics()
    sys.modules.pop(f"{metrics.__name__}.again", None)


def test_metrics_have_titles_and_what_they_are_computed_from():
    for metric in all_metrics().values():
        assert metric.title and (metric.compute is None) != (metric.groups is None)
        assert metric.control is None or metric.groups is not None
        assert not metric.sanity_of or metric.sanity_of in judged_metrics()
