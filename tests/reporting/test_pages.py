"""What the pages say, and that nothing which others wrote becomes markup."""

import json
import os
import re
import time
import urllib.parse
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.agent.tasks.grammar import parse
from openmaia.evaluation.analysis.sanity import TESTS, measured_results, warning
from openmaia.evaluation.analysis.verdict import Verdict, run_verdicts
from openmaia.evaluation.metric import all_metrics
from openmaia.reporting.browser.rows import RunSummary, summarize_run
from openmaia.reporting.browser.unit.observation import DISPLAYED
from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX, PagePictures
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.tables import make_rows
from openmaia.runs.records import GivenImage
from openmaia.runs.run import Run
from openmaia.runs.state import state
from tests.conftest import REPOSITORY
from tests.helpers.samples import turn
from tests.reporting.making import HOSTILE, Page, call, run, sample_image, table

REPLIES = REPOSITORY / "tests/agent/replies.jsonl"
HOSTILE_LAYER = "../..\\<b>layer</b> 100%?#&\"'"


def pages(root: Path) -> list[Path]:
    found = sorted((root / "report").rglob("*.html"))
    assert found
    return found


def unit_pages(made: Run) -> list[Path]:
    assert made.files.local
    return [path for path in pages(made.files.local) if path.name not in ("index.html", "papers.html", "run.html")]


@pytest.fixture(scope="module", params=["plain", "hostile"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    is_plain = request.param == "plain"
    return write_report([run(folder) if is_plain else run(folder, text=HOSTILE, layer=HOSTILE_LAYER)]).parent.parent


def test_only_own_scripts_and_no_handlers(report: Path):
    for path in pages(report):
        page = Page(path.read_text())
        for script in page.all("script"):
            assert (path.parent / script["src"]).resolve().parent == report / "report/assets"
        assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
        assert all("style" not in attributes for _, attributes in page.elements)
        assert all(image.get("src", DATA_URI_PREFIX).startswith(DATA_URI_PREFIX) for image in page.all("img"))


def test_hostile_text_is_shown_as_it_is(tmp_path: Path):
    made = run(tmp_path, text=HOSTILE, layer=HOSTILE_LAYER)
    index = write_report([made])
    assert HOSTILE in Page(index.read_text()).text
    _, texts = table(index)
    assert texts[0][0] == [HOSTILE, "second label"]
    assert all(
        "<" not in path.read_text() for path in (index.parent / "data").glob("t*.js") if HOSTILE in path.read_text()
    )
    (page, *_) = unit_pages(made)
    assert Page(page.read_text()).text.count(HOSTILE) > 10


def test_files_stay_below_the_report(tmp_path: Path):
    before = set(tmp_path.rglob("*"))
    made = run(tmp_path, text=HOSTILE, layer=HOSTILE_LAYER)
    write_report([made])
    assert {path.parts[len(tmp_path.parts)] for path in set(tmp_path.rglob("*")) - before} == {"tiny"}
    assert {len(p.relative_to(tmp_path / "tiny/report/units").parts) for p in unit_pages(made)} == {3}


def test_no_page_reaches_for_the_network(report: Path):
    for path in pages(report):
        html = path.read_text()
        assert not re.search(r"(?:https?:)?//[\w.-]+\.\w", re.sub(r'base64,[\w+/=]+|xmlns(:xlink)?="[^"]*"', "", html))
        policies = [m["content"] for m in Page(html).all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert len(policies) == 1
        assert "default-src 'none'" in policies[0]
        assert "unsafe" not in policies[0]


def test_all_links_resolve(report: Path):
    for path in pages(report):
        links = [link["href"] for link in Page(path.read_text()).all("a") if "href" in link]
        anchors = {attributes.get("id") for _, attributes in Page(path.read_text()).elements}
        assert links
        for link in links:
            file, _, anchor = urllib.parse.unquote(link).partition("#")
            assert anchor in anchors if not file else (path.parent / file).resolve().is_file(), link


def test_failed_and_owed_units_are_listed_with_their_cause(tmp_path: Path):
    columns, texts = table(write_report([run(tmp_path)]))
    assert columns["stop"] == ["answer", "answer", "limit", "failed", "pending"]
    assert columns["verdict"][2:] == ["not tested", "failed", "not tested"] or columns["verdict"][2] == "abstained"
    assert texts[3][2].startswith("ServiceError: the generator died")
    assert "limits.turns=3" in texts[2][2]


def test_index_begins_with_the_finding(tmp_path: Path):
    made = run(tmp_path)
    one = summary_of(made)
    page = Page(write_report([made]).read_text())
    assert one.findings[0].headline.startswith("2 of 5 units described: ")
    assert page.text.index("OpenMAIA") < page.text.index(one.findings[0].headline) < page.text.index("Verdict")
    for each in one.findings[1:]:
        assert each.sentence[1:] in page.text


def test_sizes_stand_beside_aucs(tmp_path: Path):
    made = run(tmp_path)
    columns, _ = table(write_report([made]))
    tested = [scores for _, scores in sorted(made.scores().items()) if scores["z_positive"] is not None]
    assert tested and [value for value in columns["z_exemplars"] if value is not None] == [2.5] * len(tested)
    assert "+2.50 on the unit’s top exemplars" in Page(unit_pages(made)[0].read_text()).text


def test_claim_links_to_the_turn_that_measured_it(tmp_path: Path):
    made = run(tmp_path)
    write_report([made])
    html = unit_pages(made)[0].read_text()
    claims = html[html.index('id="claims"') : html.index("Costs and settings")]
    assert 'href="#turn-2">Turn 2</a>: 1 image of it, mean activation 7.25' in claims
    assert [link["href"] for link in Page(claims).all("a") if link.get("href", "").startswith("#turn-1")]


def summary_of(made: Run) -> RunSummary:
    return summarize_run(made, made.name, make_rows(made, made.name, "units/"))


def test_backbone_and_generator_are_named(tmp_path: Path):
    made = run(tmp_path)
    run_page = Page((write_report([made]).parent / "run.html").read_text())
    assert "made by collage (cut-outs, photographs and shapes; no generative model)" in run_page.text
    assert "scripted (no language model" in run_page.text
    assert "scripted (no language model" in Page(unit_pages(made)[0].read_text()).text


def test_hypotheses_are_compared_with_the_turn_before(tmp_path: Path):
    made = run(tmp_path)
    write_report([made])
    html = unit_pages(made)[0].read_text()
    second = html[html.index('id="turn-2"') : html.index('id="turn-3"')]
    assert '<li class="hostile new">dogs' in second
    assert '<li class="hostile">Cats' in second
    assert "<del>a striped cat</del>" in second


def test_measured_image_has_prompt_activation_and_percentile(tmp_path: Path):
    made = run(tmp_path)
    write_report([made])
    html = unit_pages(made)[0].read_text()
    second = html[html.index('id="turn-2"') : html.index('id="turn-3"')]
    assert 'aria-label="Enlarge: a striped cat, activation 7.25"' in second
    assert "7.25" in second
    assert "p97" in second


def test_part_that_the_network_sees_is_framed_where_it_is_not_the_whole_image():
    image = sample_image(1)
    pictures = PagePictures(100_000)
    plain, cropped = (pictures.picture(image.digest, image.data, seen=seen) for seen in (None, (8, 0, 56, 64)))
    assert (plain.frame, cropped.frame) == ("", "M125 0H875V1000H125Z")


def test_long_output_is_folded(tmp_path: Path):
    made = run(tmp_path)
    write_report([made])
    assert "30 more lines" in Page(unit_pages(made)[0].read_text()).text


def test_images_beyond_those_that_a_turn_shows_are_listed(tmp_path: Path):
    """Also if it printed more than a line before each of them."""
    made = run(tmp_path, answers=1)
    images = [sample_image(number) for number in range(DISPLAYED + 4)]
    given = [GivenImage(id=f"image-{number}") for number in range(1, len(images) + 1)]
    shown = [(one.label, image) for one, image in zip(given, images, strict=True)]
    displayed = turn(
        0,
        calls=(call(0, "display", [[]], given=tuple(given), shown=tuple(part for pair in shown for part in pair)),),
        observation=tuple(
            part
            for number, (label, image) in enumerate(shown, 1)
            for part in (f"{'printed ' * 20 if number < DISPLAYED + 4 else ''}\n{label}\n", image)
        ),
        images={image.digest: image for image in images},
    )
    answered = made.record(min(made.done()))
    made.publish(replace(answered, turns=(displayed, *answered.turns[1:])))
    write_report([made])
    text = Page(unit_pages(made)[0].read_text()).text
    assert [text.count(f"[image-{number}, original]") for number in range(DISPLAYED + 1, DISPLAYED + 5)] == [1] * 4
    assert (text.count("1 more displayed images"), text.count("2 more displayed images")) == (2, 1)


def test_only_what_changed_is_written_again(tmp_path: Path):
    made = run(tmp_path)
    index = write_report([made])
    first = {path: path.stat().st_mtime_ns for path in unit_pages(made)}
    tiles = table(index)[0]["tile"]
    root = made.files.local
    assert root
    changed = root / "records/net/layer4/1-0.parquet"
    os.utime(changed, (time.time() + 5, time.time() + 5))
    write_report([made])
    again = {path: path.stat().st_mtime_ns for path in unit_pages(made)}
    assert [path.name for path in first if first[path] != again[path]] == ["1-0.html"]
    assert table(index)[0]["tile"] == tiles == [1, 1, 1, 0, 0]


def test_damaged_notes_of_an_earlier_report_do_no_harm(tmp_path: Path):
    made = run(tmp_path)
    write_report([made])
    for damage in ("[", "[]", "7", '{"units/net/layer4/0-0.html": 3}'):
        made.files.write("report/pages.json", damage.encode())
        assert table(write_report([made]))[1][0][0] == ["a striped cat", "second label"]


def test_records_are_listed_where_a_command_that_changed_the_plan_was_stopped(tmp_path: Path):
    made = run(tmp_path)
    made.files.delete("plan.json")
    assert len(table(write_report([made]))[1]) == 4


def test_replies_of_real_models_are_shown(tmp_path: Path):
    """Some have no heading at all."""
    made = run(tmp_path)
    first = sorted(made.done(), key=str)[0]
    replies = [json.loads(line)["reply"] for line in REPLIES.read_text().splitlines()]
    turns = [turn(index=number, reply=text, code=parse(text).code, calls=()) for number, text in enumerate(replies)]
    made.publish(replace(made.record(first), turns=tuple(turns)))
    write_report([made])
    shown = " ".join(Page(unit_pages(made)[0].read_text()).text.split())
    plain = [text for text in replies if "[" not in text and not parse(text).code and text.strip()]
    assert plain
    assert [text for text in plain if " ".join(text.split()) not in shown] == []


def test_damaged_record_is_a_row_that_says_so(tmp_path: Path):
    made = run(tmp_path)
    name = "records/net/layer4/0-0.parquet"
    data = made.files.read(name)
    assert data
    made.files.write(name, data[:4] + bytes(400) + data[404:])
    for _ in range(2):
        index = write_report([made])
        assert f"cannot be shown: {made.files.path(name)}: a record is a damaged Parquet" in table(index)[1][0][2]
    assert "damaged Parquet file" in Page(unit_pages(made)[0].read_text()).text


def test_all_views_take_the_state_of_a_unit_from_one_place(tmp_path: Path):
    made = run(tmp_path)
    made.files.write("records/net/layer4/0-0.parquet", b"PAR1")
    columns = table(write_report([made]))[0]
    assert columns["stop"] == [row["stop"] for row in state(made)["units"]]
    assert columns["stop"] == ["damaged", "answer", "limit", "failed", "pending"]
    assert columns["verdict"] == [each.verdict.value for each in run_verdicts(made).values()]
    assert columns["verdict"][0] == "failed"


def test_empty_run_has_a_report(tmp_path: Path):
    made = run(tmp_path)
    made.files.delete_folder("records")
    made.files.delete_folder("evaluation")
    made.files.delete_folder("failures")
    assert table(write_report([made]))[0]["stop"] == ["pending"] * 5


def test_several_runs_share_a_table_and_keep_their_pages_apart(tmp_path: Path):
    one, two = run(tmp_path / "a"), run(tmp_path / "b", text="another answer")
    index = write_report([one, two])
    columns, texts = table(index)
    assert columns["place"] == [0] * 5 + [1] * 5
    assert (texts[0][0][0], texts[5][0][0]) == ("a striped cat", "another answer")
    assert len(pages(tmp_path / "a/tiny")) == 4 + 6, "the index, three pages beside it, and those of the units"
    assert not (tmp_path / "b/tiny/report").exists()
    for link in Page(index.read_text()).all("a"):
        assert (index.parent / urllib.parse.unquote(link["href"].partition("#")[0])).is_file()


def test_page_has_a_bounded_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("openmaia.reporting.browser.write.PAGE_BYTES", 100)
    made = run(tmp_path)
    write_report([made])
    page = Page(unit_pages(made)[0].read_text())
    assert not page.all("img")
    assert "not kept on this page" in page.text


def test_metrics_that_fail_a_sanity_test_are_marked_where_they_are_shown(report: Path):
    whole, page = ((report / "report" / name).read_text() for name in ("run.html", unit_page(report)))
    elements = [attributes for _, attributes in Page(whole).elements]
    failing = sum(not passes for tests in measured_results().values() for passes in tests.values())
    assert sum(each.get("class") == "blind" for each in elements) == failing, "said once, in the section about it"
    marks = [each for each in elements if each.get("class") == "blindness"]
    assert marks and {mark["href"] for mark in marks} == {"run.html#cannot"}
    assert warning("auc") in {mark["aria-label"] for mark in marks}
    assert f"AUC is {warning('auc')}" in Page(page).text


def unit_page(report: Path) -> str:
    return next((report / "report/units").rglob("0-0.html")).relative_to(report / "report").as_posix()


def test_report_says_which_metrics_pass(report: Path):
    html = (report / "report" / "run.html").read_text()
    rows = [Page(row).text for row in html[html.index('id="cannot"') :].split("<tr>")[2:]]
    for name, tests in measured_results().items():
        title = all_metrics()[name].text
        (row,) = [row.removeprefix(title) for row in rows if row.startswith(title) and row[len(title)] in "pf"]
        assert re.findall("passes|fails", row) == ["passes" if tests[test] else "fails" for test in TESTS]


def test_every_verdict_is_explained_beside_the_wall():
    """No hint says that an undecided description is better than chance: its interval may cross it."""
    script = (REPOSITORY / "openmaia/reporting/browser/static/side.js").read_text()
    hints = dict(re.findall(r'([a-z][a-z ]*)"?: "([^"]+)"', script.partition("const HINTS = {")[2].partition("};")[0]))
    assert hints.keys() == {each.value for each in Verdict}
    assert "chance" not in hints[Verdict.UNDECIDED]
