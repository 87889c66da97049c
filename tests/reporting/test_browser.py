"""The report in a real browser, opened from a folder: the first screen, wall and table, keys, and hostile texts."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.analysis.search import read_things
from openmaia.config.loading import load, restore
from openmaia.core.errors import UsageError
from openmaia.core.units import Unit
from openmaia.recipes.choices.answers import read_answers, score_answers
from openmaia.recipes.choices.page import render_page
from openmaia.recipes.choices.questions import choice_pairs, make_blind
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.query import read_query
from openmaia.reporting.tables import make_rows
from openmaia.runs.records import Stop
from openmaia.runs.run import Run
from tests.helpers.chromium import CHROMIUM, Tab, browser
from tests.helpers.hostile import TEXTS
from tests.reporting.making import HOSTILE, record, run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")

READY = "document.body?.dataset.ready === 'texts'"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([run(tmp_path_factory.mktemp("report"), answers=30)])


def names(tab: Tab) -> list[str]:
    return tab.run("[...document.querySelectorAll('#table tbody td.unit')].map((cell) => cell.textContent)")


def tiles(tab: Tab) -> list[str]:
    """The names of the units on the wall, in their order, as far as they are in the document."""
    return tab.run(
        "[...document.querySelectorAll('#wall .tile')].map((tile) => openmaia.name(Number(tile.dataset.row)))"
    )


def groups(tab: Tab) -> list[str]:
    return tab.run("[...document.querySelectorAll('#wall h2')].map((head) => head.textContent)")


def type_query(tab: Tab, text: str) -> None:
    tab.run(f"search().value = {json.dumps(text)}; search().dispatchEvent(new Event('input')); 0")


PLACES = """(() => {
  const inside = (one) => { const box = one.getBoundingClientRect(); return box.width > 0 && box.left >= 0 && box.right <= innerWidth; };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = all('#wall .tile').filter((tile) => tile.getBoundingClientRect().bottom <= innerHeight);
  return {
    sentence: all('h1')[0].getBoundingClientRect().bottom < innerHeight,
    tiles: seen.filter((tile) => tile.querySelector('.label').textContent && tile.querySelector('.sign').textContent).length,
    drawn: seen.every((tile) => [...tile.querySelectorAll('img')].every((image) => image.naturalWidth > 0)),
    inside: all('h1, #wall .tile, .bar input:not([name=size]), .bar select, .bar button').filter((one) => one.checkVisibility()).every(inside),
    clipped: document.documentElement.scrollWidth > innerWidth,
  };
})()"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 900), (390, 844)])
def test_first_screen_shows_sentence_and_labelled_tiles(index: Path, tab: Tab, width: int, height: int):
    tab.resize(width, height)
    tab.open(index.as_uri(), READY)
    tab.wait("[...document.querySelectorAll('#wall img')].every((image) => image.complete)")
    places = tab.run(PLACES)
    assert places.pop("tiles") >= 3
    assert places == {"sentence": True, "drawn": True, "inside": True, "clipped": False}
    tab.run("document.getElementById('going').hidden = true")  # what a run that has ended does not show
    assert width > 800 or tab.run("document.querySelector('#wall img').getBoundingClientRect().top") < 300
    tab.open(index.as_uri() + "#size=table", READY)
    assert not tab.run("document.documentElement.scrollWidth > innerWidth")
    edges = (
        "(one) => one.getBoundingClientRect().right <= document.querySelector('.scroll').getBoundingClientRect().right"
    )
    assert width > 800 or tab.run(f"[...document.querySelectorAll('#table .verdict')].every({edges})")


def test_table_sorts_filters_and_pages(index: Path, tab: Tab):
    tab.resize(1440)
    tab.open(index.as_uri(), READY)
    verdicts = tab.run("[...shown].map((row) => openmaia.value(row, 'verdict'))")
    assert verdicts == sorted(verdicts), "the best verdicts come first"
    tab.open(index.as_uri() + "#sort=unit&size=table", READY)
    assert names(tab) == [f"layer4/{n}" for n in range(25)]
    tab.run("document.querySelector('.dt-paging-button.next').click()")
    assert names(tab) == [f"layer4/{n}" for n in range(25, 33)]
    type_query(tab, "turns>=3 verdict:failed")
    assert names(tab) == ["No unit matches."] or names(tab) == []
    type_query(tab, "GENERATOR died")
    assert names(tab) == ["layer4/31"]
    type_query(tab, "")
    header = "[...document.querySelectorAll('#table th')].find((th) => th.textContent.includes('Unit'))"
    tab.run(f"{header}.querySelector('[role=button]').click()")
    assert names(tab)[0] == "layer4/32" and tab.run(f"{header}.getAttribute('aria-sort')") == "descending"


def test_words_typed_letter_by_letter_find_what_they_find_at_once(index: Path, tab: Tab):
    tab.open(index.as_uri() + "#sort=unit&size=table", READY)
    for query in (
        "layer4/2 stri",
        "layer4/2 striped -verdict:failed",
        '"layer4/2" turns>=3',
        "-layer4/2 a",
        "turns>1x",
    ):
        for end in range(1, len(query) + 1):
            type_query(tab, query[:end])
        typed = tab.run("shown.join()")
        assert typed == tab.run(f"openmaia.table.excluded.clear(), openmaia.select({json.dumps(query)}, 'unit').join()")
    type_query(tab, "layer4/2 stri")
    assert names(tab) == [f"layer4/{n}" for n in (2, *range(20, 30))]


def test_address_keeps_filter_and_order_also_after_the_back_button(index: Path, tab: Tab):
    tab.open(index.as_uri() + "#size=table", READY)
    type_query(tab, "layer4/2 turns>1")
    tab.run("document.querySelector('[aria-label*=Unit][role=button]')?.click()")
    wanted, address = names(tab), tab.run("location.hash")
    assert wanted and "q=" in address
    tab.leave("document.querySelector('#table a.open').click()")
    tab.wait("document.body?.dataset.page && document.readyState === 'complete'")
    tab.leave("history.back()")
    tab.wait(READY)
    assert (tab.run("search().value"), names(tab), tab.run("location.hash")) == ("layer4/2 turns>1", wanted, address)


def test_unit_pages_follow_the_order_of_the_table(index: Path, tab: Tab):
    tab.open(index.as_uri() + "#sort=-unit&size=table", READY)
    assert names(tab)[:2] == ["layer4/32", "layer4/31"]
    tab.press("j")
    assert tab.run("document.activeElement.textContent") == "layer4/30", "units without a record have no page"
    tab.press("j")
    tab.press("o")
    tab.wait("document.body?.dataset.page === 'units/net/layer4/29-0.html' && document.readyState === 'complete'")
    tab.press("j")
    tab.wait("document.body?.dataset.page === 'units/net/layer4/28-0.html' && document.readyState === 'complete'")
    tab.press("k")
    tab.wait("document.body?.dataset.page === 'units/net/layer4/29-0.html' && document.readyState === 'complete'")
    tab.press("o")
    assert tab.run("[...document.querySelectorAll('details.turn')].every((turn) => turn.open)")
    tab.press("/")
    tab.wait(f"{READY} && document.activeElement.id === 'search'")
    assert tab.run("location.hash") == "#sort=-unit&size=table"


def test_wall_is_grouped_by_verdict_and_by_what_is_not_done(index: Path, tab: Tab):
    tab.resize(1440, 2400)
    tab.open(index.as_uri(), READY)
    assert groups(tab) == ["Without a verdict 31 units", "Waiting 1 unit", "Failed 1 unit"]
    assert len(tiles(tab)) == 33
    click = (
        "[...document.querySelectorAll('#verdicts button')].find((one) => one.textContent.includes('failed')).click()"
    )
    tab.run(click)
    assert (tiles(tab), tab.run("search().value")) == (["layer4/31"], "verdict:failed")
    tab.run(click)
    assert (len(tiles(tab)), tab.run("search().value")) == (33, "")


def test_units_without_words_are_what_the_agents_could_not_say(tmp_path: Path, tab: Tab):
    made = run(tmp_path)
    config = restore(made.config(), str(tmp_path))
    made.publish(record(Unit(target="net", layer="layer4", index=4), config, stop=Stop.ABSTAIN))
    tab.open(write_report([made]).as_uri() + "#q=verdict%3Aabstained", READY)
    assert (groups(tab), tiles(tab)) == (["What the agents could not say 1 unit"], ["layer4/4"])


def test_wall_is_sorted_by_number_and_by_concept(index: Path, tab: Tab):
    tab.resize(1440, 2400)
    tab.open(index.as_uri() + "#sort=unit", READY)
    assert tiles(tab) == [f"layer4/{n}" for n in range(33)]
    tab.run(
        "const box = document.getElementById('sort'); box.value = 'concept'; box.dispatchEvent(new Event('change'))"
    )
    assert groups(tab) == ["a striped cat 30 units", "Without a concept 3 units"]
    tab.run("document.querySelector('#concepts button').click()")
    assert (tab.run("search().value"), len(tiles(tab))) == ("concept:a_striped_cat", 30)
    assert tab.run("location.hash") == "#q=concept%3Aa_striped_cat&sort=concept"


def test_least_score_is_a_condition_of_the_search(index: Path, tab: Tab):
    tab.resize(1440, 2400)
    tab.open(index.as_uri(), READY)
    move = "document.getElementById('least').value = {}; document.getElementById('least').dispatchEvent(new Event('input'))"
    tab.run(move.format(95))
    assert (tab.run("search().value"), tiles(tab)) == ("worst>=0.95", []), "no test of this run has enough prompts"
    assert "No unit matches" in tab.run("document.getElementById('wall').textContent")
    tab.run(move.format(0))
    assert (tab.run("search().value"), tab.run("shown.length")) == ("", 33)


def test_keys_go_through_the_wall_and_open_a_unit(index: Path, tab: Tab):
    tab.open(index.as_uri() + "#sort=unit&size=small", READY)
    tab.press("j")
    tab.press("j")
    assert tab.run("document.activeElement.dataset.row") == "1"
    tab.press("p")
    assert tab.run("document.getElementById('parts').checked")
    tab.wait(
        "[...document.querySelectorAll('#wall img')].every((image) => image.src.endsWith('-0.part.webp') && image.naturalWidth === 146)"
    )
    tab.press("k")
    tab.press("o")
    tab.wait("document.body?.dataset.page === 'units/net/layer4/0-0.html' && document.readyState === 'complete'")
    tab.press("j")
    tab.wait("document.body?.dataset.page === 'units/net/layer4/1-0.html' && document.readyState === 'complete'")


def test_only_what_is_near_is_in_the_document(tmp_path: Path, tab: Tab):
    """Lines that leave the surroundings go, those that enter come in their order, and the focus stays."""
    tab.resize(390, 300)
    tab.open(write_report([run(tmp_path, answers=60)]).as_uri() + "#sort=unit", READY)
    assert 3 <= len(tiles(tab)) < 40
    settle = "new Promise((done) => setTimeout(done, 300))"
    tab.run(f"document.querySelector('#wall a').focus(); scrollTo(0, 100000); {settle}")
    rows = [int(name.removeprefix("layer4/")) for name in tiles(tab)]
    assert tab.run("document.activeElement.dataset.row") == "0"
    assert len(rows) < 50 and rows == sorted(rows) and (rows[0], rows[-1]) == (0, 62)
    tab.run(f"scrollTo(0, 0); {settle}")
    rows = [int(name.removeprefix("layer4/")) for name in tiles(tab)]
    assert rows == list(range(len(rows)))
    for _ in range(40):
        tab.press("j")
    assert tab.run("document.activeElement.dataset.row") == "40"


def test_descriptions_without_a_verdict_stand_before_units_without_a_description(tmp_path: Path, tab: Tab):
    made = run(tmp_path)
    shutil.rmtree(made.files.path("evaluation"))
    config = load(["name=tiny", "units=all", "target.name=net", 'target.layers=["layer4"]', f"paths.runs={tmp_path}"])
    made.publish(record(Unit(target="net", layer="layer4", index=0), config, stop=Stop.ABSTAIN))
    tab.resize(1440, 2400)
    tab.open(write_report([made]).as_uri(), READY)
    names = [
        "Without a verdict 1 unit",
        "What the agents could not say 1 unit",
        "Without a verdict 1 unit",
        "Waiting 1 unit",
    ]
    assert groups(tab) == [*names, "Failed 1 unit"]
    assert tiles(tab)[:2] == ["layer4/1", "layer4/0"]
    rows = sorted(make_rows(made, "tiny"), key=lambda row: row.rank)
    assert [row.unit.index for row in rows[:2]] == [1, 0]


def test_run_that_goes_on_says_what_runs_waits_and_failed(index: Path, tab: Tab):
    tab.resize(1440)
    tab.open(index.as_uri(), READY)
    assert "31 of 33 units done" in tab.run("document.getElementById('going').innerText")
    pairs = "[...document.querySelectorAll('#going dl div')].map((one) => [...one.children].map((each) => each.textContent))"
    assert dict(tab.run(pairs)) == {"done": "31", "running": "0", "waiting": "1", "failed": "1"}
    assert tab.run("document.querySelector('.failures summary').textContent") == "1 failed"
    tab.run("document.querySelector('.failures').open = true")
    assert "ServiceError: the generator died a striped cat" in tab.run("document.querySelector('.failures').innerText")


def test_links_to_turns_zoom_and_parts(index: Path, tab: Tab):
    tab.open((index.parent / "units/net/layer4/0-0.html").as_uri())
    assert tab.run("[...document.images].every((image) => image.src)")
    assert tab.run("getComputedStyle(document.querySelector('.lit')).display") != "none"
    tab.run("document.getElementById('parts').click()")
    assert tab.run("getComputedStyle(document.querySelector('.lit')).display") == "none"
    tab.run("document.querySelector('button.picture').click()")
    assert tab.run("document.getElementById('zoom').open")
    tab.run("document.querySelector('#zoom button').click(); document.querySelector('.support a').click()")
    tab.wait("document.querySelector('details.turn:target').open")


def test_csv_of_the_selection_holds_no_formula(tmp_path: Path, tab: Tab):
    made = run(tmp_path, text='=HYPERLINK("x"),', answers=2)
    tab.open(write_report([made]).as_uri() + "#size=table", READY)
    type_query(tab, "layer4/0")
    lines = tab.run("openmaia.csv(shown)").split("\r\n")
    assert len(lines) == 2 and lines[0].startswith("run,target,layer,index,replicate,labels,description,verdict,")
    assert lines[1].startswith('tiny,net,layer4,0,0,"\'=HYPERLINK(""x""),; second label"')
    cells = tab.run("['=1', '+1', '-1', '@a', -1, NaN].map(openmaia.csvCell)")
    assert cells == ["'=1", "'+1", "'-1", "'@a", "-1", ""]


def test_hostile_texts_do_not_run(tmp_path: Path, tab: Tab):
    made = run(tmp_path, text=HOSTILE, layer="</select><script>document.title='owned'</script>")
    index = write_report([made])
    for page in sorted(index.parent.rglob("*.html")):
        tab.open(page.as_uri(), READY if page == index else "document.readyState === 'complete'")
        assert tab.run("document.title") != "owned"
        assert tab.run(f"[...document.scripts].every((script) => script.src.startsWith('{index.parent.as_uri()}/'))")
        assert tab.run("document.querySelectorAll('[onerror], iframe').length") == 0
    tab.open(index.as_uri(), READY)
    for place in ("#wall .label", "#concepts .label", ".failures li"):
        assert HOSTILE.lower()[:60] in tab.run(f"document.querySelector('{place}').textContent").lower()
    tab.run("document.querySelector('#concepts button').click()")
    assert len(tiles(tab)) == 2
    tab.open(index.as_uri() + "#size=table", READY)
    assert HOSTILE in tab.run("document.querySelector('#table .chip').textContent")


def test_policy_refuses_other_scripts(index: Path, tab: Tab, tmp_path: Path):
    changed = index.with_name("changed.html")
    changed.write_text(index.read_text().replace("</body>", "<script>document.title = 'owned'</script></body>"))
    tab.open(changed.as_uri(), READY)
    assert tab.run("document.title") != "owned"


def test_forced_choice_is_answered_by_clicks_and_saved_as_what_is_read_back(tmp_path: Path, tab: Tab):
    asked, key = make_blind(
        choice_pairs([(run(tmp_path / "a"), "a"), (run(tmp_path / "b", text='dogs &amp; "cats"'), "b")])
    )
    index = tmp_path / "page.html"
    index.write_bytes(render_page(asked, key.name))
    tab.open(index.as_uri())
    tab.run("document.getElementById('two').click();" * (len(asked) - 1) + "document.getElementById('one').click();")
    saved = re.search(r"\{\s*\"page\".*?\}\s*\}", tab.run("document.getElementById('text').value"), re.DOTALL)
    assert saved
    answers = read_answers(saved[0].encode(), "x.json")
    assert answers.chosen == {one.name: 2 for one in asked[:-1]} | {asked[-1].name: 1}
    assert score_answers([answers], key, 100).answered == len(asked)


def test_forced_choice_by_true_labels_shows_them_as_texts(tmp_path: Path, tab: Tab):
    hostile = "dogs <img src=x onerror=\"document.title='owned'\">"
    runs = [(run(tmp_path / "a"), "a"), (run(tmp_path / "b", text="cats"), "b")]
    asked, key = make_blind(choice_pairs(runs, {("layer4", 0): hostile, ("layer4", 1): "tails"}))
    index = tmp_path / "page.html"
    index.write_bytes(render_page(asked, key.name))
    tab.open(index.as_uri())
    for question in asked:
        shown = tab.run("({truth: document.getElementById('truth').innerText, images: document.images.length})")
        assert shown == {"truth": question.pair.truth, "images": 0}
        tab.run("document.getElementById('one').click()")
    assert {question.pair.truth for question in asked} == {hostile, "tails"}
    assert tab.run("document.title") == "Which label fits?"


QUESTIONED = """(() => {
  const labels = { 1: ['dog'], 2: ['animal and bus'], 3: ['boat without dogs'] };
  const lines = Array.from({ length: openmaia.table.size }, (_, row) => JSON.stringify([labels[row] ?? [], '', '', '', '']));
  openmaia.receiveTexts(0, lines.join('\\n'));
})()"""
"""Labels of three units."""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a run whose generator draws scenes."""
    made = run(tmp_path_factory.mktemp("scenes"), answers=4)
    drawn = made.config() | {"generator": {"kind": "scenes", "size": 64, "without": []}}
    drawn["evaluate"]["writer"] = {"kind": "scene_rules"}
    made.files.write("config.yaml", json.dumps(drawn).encode())
    return write_report([Run.open(made.files.root)])


def test_words_and_questions_find_what_means_the_same(scenes: Path, tab: Tab):
    tab.open(scenes.as_uri() + "#size=table", READY)
    tab.run(QUESTIONED)
    found = "[...openmaia.select({}, 'unit', false)].map(openmaia.name).join()"
    for query, wanted in {
        "creatures": "layer4/1,layer4/2",
        "dogs verdict:failed": "",
        "which units of layer4 respond to dogs?": "layer4/1,layer4/2",
        "which units respond to buses?": "layer4/2",
        "what responds to boats?": "layer4/3",
        "does a neuron here seem to be tuned to boats?": "layer4/3",
        "which of them are gyroscopic?": "",
        "which units respond to red dogs?": "",
        "which units respond to dogs -bus verdict:not_tested?": "layer4/1",
    }.items():
        assert tab.run(found.format(json.dumps(query))) == wanted, query


def test_page_reads_words_as_python_does(scenes: Path, tab: Tab):
    tab.open(scenes.as_uri(), READY)
    lexicon = {phrase: frozenset(names) for phrase, names in tab.run("openmaia.table.language.lexicon").items()}
    assert len(lexicon) > 400
    for text in (
        "Which units of layer4 respond to polka dots, at night?", "A boat without night; two CATS on the houses' roofs",
        "the glasses of an octopus, buses & boxes, berries: ünïcode ☃ striped", *TEXTS.values(),
    ):  # fmt: skip
        text = text.encode(errors="replace").decode()
        read = tab.run(f"openmaia.things({json.dumps(text)})")
        assert [(phrase, frozenset(names)) for phrase, names in read] == list(read_things(text, lexicon)), text


def test_typo_in_a_field_is_named_with_the_nearest(index: Path, tab: Tab):
    tab.open(index.as_uri() + "#size=table", READY)
    for query, said in {
        "verdct:supported": "There is no field verdct; the nearest is verdict. Quotes search for the text itself.",
        "striped -scor>0.8": "There is no field scor; the nearest is score. Quotes search for the text itself.",
        "verdict>0.5": "verdict>0.5: ask for verdict in the form verdict:supported",
        "worst:high": "worst:high: ask for worst in the form worst>0.5",
    }.items():
        type_query(tab, query)
        assert tab.run("[document.getElementById('count').textContent, shown.length]") == [said, 0]
        with pytest.raises(UsageError) as refused:
            read_query(query)
        assert refused.value.message == said, "Python says the same"
    type_query(tab, '"verdct:supported"')
    assert tab.run("document.getElementById('count').textContent") == "0 of 33"
    type_query(tab, "score>=0 verdict:not_supported")
    assert tab.run("openmaia.problem(state.q)") == ""
