"""The page of a unit: what excites it, the axis with the test, the story, and units like it."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.analysis.verdict import ControlScore, UnitVerdict, Verdict
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.effects import EffectTests, UnitEffect, write_effects
from openmaia.evaluation.faithfulness import ClassEffect, Faithfulness, UnitFaithfulness, write_faithfulness
from openmaia.evaluation.steering import SteeredUnit, Steering, read_steering, write_steering
from openmaia.evaluation.storage import StoredTrials, to_parquet
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.reporting.browser.unit.axis import Axis, count_pairs
from openmaia.reporting.browser.unit.saying import say_verdict
from openmaia.reporting.browser.write import write_report
from openmaia.runs.run import Run
from tests.helpers.chromium import CHROMIUM, Tab, browser
from tests.helpers.samples import store_evaluation
from tests.reporting.making import HOSTILE, Page, run, sample_image
from tests.reporting.test_accessibility import axe
from tests.reporting.test_sheets import store
from tests.reporting.test_tiles import pointing

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
IMAGES = 6


def trial(unit: Unit, text: str, own: float, first: int) -> Trial:
    """Images of the description at `own` and above, neutral ones at 1 and above, all different."""
    stimuli = tuple(
        Stimulus(
            role=role,
            label=text,
            prompt=f"{text} {number}",
            digest=sample_image(first + number).digest,
            data=sample_image(first + number).packed().data,
            activation=(own if role == "positive" else 1.0) + number / 10,
        )
        for number, role in enumerate(["positive"] * IMAGES + ["neutral"] * IMAGES)
    )
    matrix = np.array([[each.activation] * 64 for each in stimuli], np.float16)
    return Trial(
        claim=Claim(unit=unit, description=text, labels=(text,)),
        outcome="tested",
        stimuli=stimuli,
        matrix=matrix,
        location=np.zeros(64),
        scale=np.ones(64),
        standard="exemplars",
    )


def make_tested(folder: Path, text: str = "a striped cat") -> Run:
    """Two tested units, whose images are controls of one another, with exemplars."""
    made = pointing(run(folder, text=text), folder / "exemplars")
    store(folder / "exemplars", target=made.config()["target"]["name"])
    first, second = (each for each in sorted(made.done())[:2])
    one, two = trial(first.unit, text, 8.0, 0), trial(second.unit, f"other {text}", 6.0, 40)
    for investigation, own, other in ((first, one, two), (second, two, one)):
        store_evaluation(made, investigation, to_parquet(Evaluation(trial=own, others=(other,))))
    return made


def page_of(made: Run) -> str:
    return next(write_report([made]).parent.rglob("0-0.html")).read_text()


def images_of(html: str) -> int:
    return len(Page(html).all("img"))


def test_page_shows_exemplars_of_the_store_and_not_only_those_that_were_asked_for(tmp_path: Path):
    html = page_of(make_tested(tmp_path))
    top = html[html.index('class="top"') : html.index("</ul>", html.index('class="top"'))]
    assert [line in top for line in (">42.5<", ">41.5<", ">34.5<", ">33.5<")] == [True, True, True, False], (
        "nine of them"
    )
    assert top.count('class="veil"') == 9
    assert "Histogram of the activations on 1,000 images, from 0 to 42" in html
    counts = [each["data-count"] for each in Page(html).all("rect") if "data-count" in each]
    assert (counts[0], counts[13], counts[27], len(counts), set(counts[1:13])) == ("900", "99", "1", 28, {"0"})


def test_page_holds_each_image_once(tmp_path: Path):
    images = Page(page_of(make_tested(tmp_path))).all("img")
    sources = [each["src"] for each in images if each.get("src")]
    assert len(set(sources)) == len(sources) < len(images)
    assert {each["data-same"] for each in images if "data-same" in each} <= {each.get("data-key") for each in images}


def test_lost_exemplars_are_said_in_one_line_and_those_of_the_record_are_shown(tmp_path: Path):
    html = page_of(run(tmp_path))
    assert html.count("The exemplars cannot be read: no exemplars of layer4") == 1
    assert "Shown are those that the agent asked for." in html
    assert 'class="top"' in html and 'id="bars"' not in html


def test_class_outputs_are_called_by_their_names(tmp_path: Path):
    made = pointing(run(tmp_path, layer="output"), tmp_path / "exemplars")
    kept = store(tmp_path / "exemplars", layer="output")
    named = [
        dataclasses.replace(kept.read(Unit(target="net", layer="output", index=index)), class_name=HOSTILE)
        for index in range(5)
    ]
    kept.write("output", named, "again")
    html = page_of(made)
    assert f"Class “{HOSTILE}”, output/0" in " ".join(Page(html).text.split())
    assert "<script>document" not in html


def test_own_images_stand_beside_the_hardest_control_with_its_pictures(tmp_path: Path):
    made = make_tested(tmp_path)
    worst = made.scores()[min(made.done())]["controls"]
    assert worst["auc_against"]["auc"] == 1.0
    html = page_of(made)
    own = html[html.index('class="row own"') : html.index('class="row control"')]
    control = html[html.index('class="row control"') : html.index("of 100</b>")]
    assert own.count("<button") == control.count("<button") == IMAGES
    assert 'data-a="8.00"' in own and "photograph" not in own + control
    assert "100 of 100" in html and "Pure chance gives 50." in html


def test_turns_are_told_in_a_line_with_their_pictures(tmp_path: Path):
    page = Page(page_of(run(tmp_path)))
    text = " ".join(page.text.split())
    assert "Looked at 1 image of the dataset that excite it most." in text
    assert "Drew 1 image and the experiment ended with an error. Strongest: a striped cat, 7.25." in text
    assert "Dropped: a striped cat." in text and "Answered." in text
    turns = [each for each in page.all("details") if each.get("class") == "turn"]
    assert len(turns) == 3 and not any("open" in each for each in turns)


def test_edited_images_are_no_images_of_what_the_prompt_named(tmp_path: Path):
    from openmaia.analysis.support import find_support
    from openmaia.runs.records import Did
    from tests.reporting.making import call, entry, turn

    base, edited = sample_image(1), sample_image(2)
    calls = (
        call(0, "edit_images", [], entries=(entry("a", base, Did.BASE, prompt="a cat"), entry("b", edited, Did.EDITED, prompt="remove the cat", of="a"))),
        call(1, "call_neuron", [], entries=(entry("c", base, Did.MEASURED, 5.0, of="a"), entry("d", edited, Did.MEASURED, 1.0, of="b"))),
    )  # fmt: skip
    texts = {"c": "a cat", "d": "a cat → remove the cat"}
    (found,) = find_support("cat", [turn(0, "", calls=calls)], texts)
    assert ([each.id for each in found.images], found.others, found.others_mean) == (["c"], 1, 1.0)


NONE = Interval(mean=float("nan"), low=float("nan"), high=float("nan"))
SURE = Interval(mean=0.91, low=0.8, high=1.0)


def measure_doing(made: Run, supported: bool = True) -> None:
    """Stores effects of the first unit, and what the network says while it is multiplied."""
    first = min(made.done())
    own = UnitFaithfulness(
        unit=first.unit, replicate=0, labels=("a",), effect=1.0, neutral=0.1, auc=SURE, other=NONE, difference=NONE,
        classes=(ClassEffect(HOSTILE, 0.83, 0.41),),
    )  # fmt: skip
    write_faithfulness(made, Faithfulness(units=(own,), auc=SURE, other=NONE, difference=NONE))
    half = Interval(mean=0.52, low=0.4, high=0.6)
    named = UnitEffect(
        unit=first.unit, replicate=0, named=("zebra", HOSTILE), auc=SURE, random=half, difference=SURE, p=0.01, q=0.02,
        supported=supported,
    )  # fmt: skip
    share = (1.0, 0.8, 1.0)
    write_effects(
        made, EffectTests(units=(named,), auc=SURE, random=half, difference=SURE, supported=share, shuffled=None)
    )
    neutral = [each for each in StoredTrials(made).read(first, images=True).stimuli if each.role == "neutral"][:4]
    said = ((("okapi", 0.31), ("horse", 0.2)), (("horse", 0.4), ("okapi", 0.3)), (("zebra", 0.77), (HOSTILE, 0.2)))
    steered = SteeredUnit(unit=first.unit, said=(said,) * len(neutral))
    write_steering(made, Steering(trial=first, images=tuple(each.digest for each in neutral), units=(steered,)))


def test_what_the_unit_does_is_shown_once_it_is_measured(tmp_path: Path):
    made = make_tested(tmp_path)
    assert "openmaia evaluate RUN --faithfulness" in page_of(made)
    measure_doing(made)
    html = page_of(made)
    assert "--faithfulness" not in html
    assert "83 → 41 %" in html and "in 91 of 100 pairs" in html
    assert "Supported</b> The answer says that it raises" in html and "along random directions in 52" in html
    table = html[html.index('<table class="steered">') : html.index("</table>", html.index('<table class="steered">'))]
    assert table.count("<img") == 4
    assert [table.count(f'<th scope="row">{name}</th>') for name in ("off", "as it is", "4 times")] == [
        1,
        1,
        1,
    ]
    assert table.count('class="changed"') == 8 and "77 %" in table
    assert "<script>document" not in html
    measure_doing(made, supported=False)
    assert "Not supported</b>" in page_of(made)


def test_lost_pictures_of_steering_cost_no_page(tmp_path: Path):
    made = make_tested(tmp_path)
    measure_doing(made)
    found = read_steering(made)
    assert found is not None
    write_steering(made, dataclasses.replace(found, images=("0" * 64,) * 4))
    assert page_of(made).count("not kept on this page") >= 4


def score(key: str, auc: float, low: float, high: float) -> ControlScore:
    return ControlScore(key=key, auc=auc, low=low, high=high, positive=20, control=20, mean=0.0)


@pytest.mark.parametrize(
    ("verdict", "low", "p", "said"),
    [
        (Verdict.SUPPORTED, 0.7, 0.01, "even against the hardest kind they win 90 of 100 pairs."),
        (Verdict.UNDECIDED, 0.4, 0.01, "do not win clearly against matched neutral images: 90 of 100 pairs"),
        (Verdict.UNDECIDED, 0.7, 0.01, "with this many descriptions tested it could be luck."),
        (Verdict.UNDECIDED, 0.7, 0.3, "descriptions of other units or random words often do as well."),
        (Verdict.UNDECIDED, 0.7, None, "is not measured yet."),
        (Verdict.NOT_SUPPORTED, 0.7, 0.3, "excite the unit less than images of the dataset do"),
    ],
)
def test_verdict_is_one_sentence(verdict: Verdict, low: float, p: float | None, said: str):
    found = say_verdict(
        UnitVerdict(verdict=verdict, reason="numbers", controls=(score("auc", 0.9, low, 1.0),), p=p, q=p and 0.2)
    )
    assert said in found and found.endswith(".") and "numbers" not in found


def test_refuted_description_names_the_control_and_chance():
    refuted = UnitVerdict(
        verdict=Verdict.NOT_SUPPORTED,
        reason="",
        controls=(score("auc_random", 0.3, 0.2, 0.4), score("auc", 0.9, 0.8, 1.0)),
    )
    assert "no more than images of the dataset’s test half do: they win 30 of 100 pairs; chance is 50." in say_verdict(
        refuted
    )


def test_only_a_whole_auc_is_all_or_none_of_100_pairs():
    assert [count_pairs(auc) for auc in (0.0, 0.001, 0.5, 0.925, 0.949, 0.999, 1.0)] == [0, 1, 50, 93, 95, 99, 100]


@pytest.mark.parametrize(("low", "high"), [(0.0, 14.0), (-3.0, 0.02), (0.0, 1e-5), (0.0, 1e7)])
def test_ticks_are_round_and_on_the_axis(low: float, high: float):
    ticks = Axis(low, high).ticks
    assert 3 <= len(ticks) <= 9 and all(low <= tick <= high * (1 + 1e-9) for tick in ticks)
    steps = np.diff(ticks)
    assert steps == pytest.approx(np.full(len(steps), steps[0]), rel=1e-6)


# -- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.call("Emulation.setFocusEmulationEnabled", enabled=True)
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = make_tested(tmp_path_factory.mktemp("unit"))
    measure_doing(made)
    return next(write_report([made]).parent.rglob("0-0.html")).as_uri()


def readout(tab: Tab) -> Sequence[str]:
    return tab.run("[...document.querySelector('#readout p').children].map((one) => one.textContent)")


@needs_chromium
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_first_picture_is_near_the_top_and_the_page_is_short(address: str, tab: Tab, width: int, height: int):
    tab.resize(width, height)
    tab.open(address)
    assert 0 < tab.run("document.querySelector('.top img').getBoundingClientRect().top") < 300
    assert tab.run("document.documentElement.scrollHeight") < 4500
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("[...document.images].filter((one) => one.alt && !one.hidden).every((one) => one.src)")


@needs_chromium
def test_middle_of_a_long_conversation_is_folded_on_a_telephone(tmp_path: Path, tab: Tab):
    made = make_tested(tmp_path)
    first = sorted(made.done())[0]
    stored = made.record(first)
    made.publish(
        dataclasses.replace(stored, turns=tuple(dataclasses.replace(stored.turns[n % 3], index=n) for n in range(14)))
    )
    page = next(write_report([made]).parent.rglob("0-0.html")).as_uri()
    seen = "[...document.querySelectorAll('details.turn')].filter((one) => one.checkVisibility()).map((one) => one.id)"
    tab.resize(390, 844)
    tab.open(page)
    assert tab.run(seen) == [f"turn-{n}" for n in (1, 2, 3, 13, 14)]
    assert tab.run("document.querySelector('.middle > summary').textContent") == "Turns 4 to 12"
    assert tab.run("document.documentElement.scrollHeight") < 4500
    tab.open(f"{page}#turn-6")
    assert tab.run("document.getElementById('turn-6').open") and len(tab.run(seen)) == 14
    tab.resize(1440, 900)
    tab.open(page)
    assert len(tab.run(seen)) == 14 and tab.run("document.documentElement.scrollHeight") < 4500


@needs_chromium
def test_images_stand_at_their_activations(address: str, tab: Tab):
    tab.resize(1440)
    tab.open(address)
    places = tab.run(
        "['.own', '.control'].map((row) => [...document.querySelectorAll(`${row} .swarm button`)].map((one) => one.getBoundingClientRect().left))"
    )
    own, control = places
    assert own == sorted(own) and control == sorted(control) and max(control) < min(own)
    assert tab.run("getComputedStyle(document.querySelector('.swarm .mean')).left") != "0px"


@needs_chromium
def test_readout_follows_slider_and_keys_without_moving_the_page(address: str, tab: Tab):
    tab.resize(1440)
    tab.open(address)
    assert readout(tab)[1] == "1 image at 40.5 to 42.0"
    before = tab.run("document.documentElement.scrollHeight")
    tab.run("level.value = 13; level.dispatchEvent(new Event('input')); 0")
    assert readout(tab)[1].startswith("99 images at")
    assert tab.run("document.querySelectorAll('#bars .on').length") == 1
    tab.run("level.value = 5; level.dispatchEvent(new Event('input')); 0")
    assert readout(tab)[:2] == ["No image at this level", "0 images at 7.50 to 9.00"]
    tab.run("document.querySelector('.own .swarm button').focus()")
    assert readout(tab)[:2] == ["a striped cat 0", "from the description, activation 8.00"]
    assert readout(tab)[2].startswith("stronger than on 90 % of the dataset")
    tab.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})); 0")
    assert readout(tab)[0] == "a striped cat 1"
    assert tab.run("document.documentElement.scrollHeight") == before


@needs_chromium
def test_part_turns_and_labels_answer(address: str, tab: Tab):
    tab.open(address)
    box = "JSON.stringify(document.querySelector('.top {}').getBoundingClientRect())"
    assert tab.run(box.format(".lit")) == tab.run(box.format("img"))
    tab.press("p")
    assert tab.run("getComputedStyle(document.querySelector('.lit')).display") == "none"
    tab.press("o")
    assert tab.run("[...document.querySelectorAll('details.turn')].every((turn) => turn.open)")
    tab.run("document.querySelector('[data-label]').click()")
    assert tab.run("document.querySelectorAll('.own .swarm .hit').length") == IMAGES
    tab.run("document.querySelector('.top button.picture').click()")
    assert tab.run("document.getElementById('zoom').open")


@needs_chromium
def test_units_like_it_stand_in_tabs(address: str, tab: Tab):
    tab.open(address)
    tab.wait("!document.getElementById('similar').hidden")
    tabs = tab.run("[...document.querySelectorAll('#similar [role=tab]')].map((one) => one.textContent)")
    assert tabs == ["by images", "by words", "by activations"]
    assert tab.run("document.querySelector('#similar [role=tabpanel]:not([hidden]) a').href").endswith(
        "layer4/1-0.html"
    )
    tab.run("document.getElementById('tab-activations').click()")
    assert tab.run("document.querySelector('#similar [role=tabpanel]:not([hidden])').id") == "panel-activations"
    assert "correlation 1.00" in tab.run("document.querySelector('#panel-activations').textContent")


@needs_chromium
def test_hostile_words_on_the_axis_stay_words(tmp_path: Path, tab: Tab):
    index = write_report([make_tested(tmp_path, HOSTILE)])
    tab.open(next(index.parent.rglob("0-0.html")).as_uri())
    assert tab.run("document.title") != "owned"
    tab.run("document.querySelector('.own .swarm button').focus()")
    assert HOSTILE in readout(tab)[0]
    assert tab.run("document.querySelectorAll('[onerror], iframe').length") == 0


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_page_has_no_finding_of_axe(address: str, tab: Tab, scheme: str, width: int):
    source = axe()
    tab.scheme(scheme)
    tab.resize(width, 900)
    tab.open(address)
    tab.wait("!document.getElementById('similar').hidden")
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.run(source + "; 0")
    found = json.loads(tab.run("axe.run().then((found) => JSON.stringify(found.violations))"))
    assert [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found] == []
