"""The index in a real browser: sorting, filtering, and that hostile texts stay texts."""

import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.evaluation.choice.answers import read_answers, score_answers
from openmaia.evaluation.choice.page import render_page
from openmaia.evaluation.choice.questions import choice_pairs, make_blind
from openmaia.reporting.browser import write_report
from tests.reporting.making import HOSTILE, Page, run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --virtual-time-budget=4000"
).split()

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")


def browse(page: Path, profile: Path, *flags: str) -> str:
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def after(index: Path, script: str, profile: Path, *flags: str) -> Page:
    """The page as it stands when a visitor has done what the script does. The script joins the page's own one, so that
    the policy has to be told of it; everything else stays as written."""
    html = re.sub(r"script-src [^;]*;", "script-src 'unsafe-inline';", index.read_text())
    visited = index.with_name("visited.html")
    visited.write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    return Page(browse(visited, profile, "--dump-dom", *flags))


def rows(page: Page) -> list[str]:
    """Indices of the units that are shown, in order."""
    shown = [attributes for attributes in page.all("tr")[1:] if "hidden" not in attributes]
    return [attributes["data-at"] for attributes in shown]


MARK = "for (const row of document.querySelectorAll('tbody tr')) row.dataset.at = row.rowIndex - 1;"


def click(name: str) -> str:
    return f"[...document.querySelectorAll('th button')].find((b) => b.textContent === '{name}').click();"


def test_headers_sort_and_say_so(tmp_path: Path):
    index = write_report([run(tmp_path)])
    up = after(index, MARK + click("AUC"), tmp_path / "p1")
    assert rows(up)[:2] == ["0", "1"]
    down = after(index, MARK + click("AUC") + click("AUC"), tmp_path / "p2")
    assert rows(down)[:2] == ["1", "0"], "units without a value stay last"
    assert [th["aria-sort"] for th in down.all("th") if th.get("aria-sort", "none") != "none"] == ["descending"]


PLACES = """
const shown = [...document.querySelectorAll('.lead, .card, .card img, .card .chip')].map((one) => one.getBoundingClientRect());
document.body.dataset.cards = document.querySelectorAll('.card').length;
document.body.dataset.pictures = document.querySelectorAll('.card img').length;
document.body.dataset.inside = shown.every((box) => box.width > 0 && box.left >= 0 && box.right <= innerWidth);
document.body.dataset.first = document.querySelector('.card').getBoundingClientRect().bottom < innerHeight;
document.body.dataset.wide = document.documentElement.scrollWidth <= innerWidth;
"""


@pytest.mark.parametrize("width", [1440, 1024, 500])  # Chromium's windows are at least 500 pixels wide
def test_first_screen_shows_labels_and_pictures(tmp_path: Path, width: int):
    index = write_report([run(tmp_path)])
    page = after(index, PLACES, tmp_path / "p", f"--window-size={width},900")
    (body,) = page.all("body")
    assert {key: body[f"data-{key}"] for key in ("cards", "pictures", "inside", "first", "wide")} == {
        "cards": "2", "pictures": "6", "inside": "true", "first": "true", "wide": "true",
    }  # fmt: skip
    assert "2 of 5 units have a description." in page.text


def test_search_and_selects_filter(tmp_path: Path):
    index = write_report([run(tmp_path)])
    fill = "const s = document.getElementById('{0}'); s.value = '{1}'; s.dispatchEvent(new Event('input'));"
    found = after(index, MARK + fill.format("search", "GENERATOR died"), tmp_path / "p1")
    assert rows(found) == ["3"]
    assert "1 of 5" in found.text
    assert rows(after(index, MARK + fill.format("stop", "answer"), tmp_path / "p2")) == ["0", "1"]


def test_hostile_texts_do_not_run(tmp_path: Path):
    made = run(tmp_path, text=HOSTILE, layer="</select><script>document.title='owned'</script>")
    index = write_report([made])
    for n, page in enumerate(sorted(index.parent.rglob("*.html"))):
        dom = browse(page, tmp_path / f"p{n}", "--dump-dom")
        titles = re.findall(r"<title>(.*?)</title>", dom, re.DOTALL)
        assert titles
        assert titles[0] != "owned"
        assert len(Page(dom).all("script")) == (1 if page == index else 0)


def test_pages_are_drawn(tmp_path: Path):
    made = run(tmp_path)
    index = write_report([made])
    for n, page in enumerate((index, index.parent / "units/net/layer4/0-0.html")):
        shot = tmp_path / f"{n}.png"
        browse(page, tmp_path / f"p{n}", f"--screenshot={shot}", "--window-size=900,1200")
        pixels = np.asarray(Image.open(io.BytesIO(shot.read_bytes())).convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 200


def test_policy_lets_the_own_script_run(tmp_path: Path):
    index = write_report([run(tmp_path)])
    dom = browse(index, tmp_path / "p", "--dump-dom")
    assert "5 of 5" in Page(dom).text
    index.write_text(index.read_text().replace(">5 of 5<", "><"))
    assert "5 of 5" in Page(browse(index, tmp_path / "p2", "--dump-dom")).text


def test_forced_choice_is_answered_by_clicks_and_saved_as_what_is_read_back(tmp_path: Path):
    asked, key = make_blind(
        choice_pairs([(run(tmp_path / "a"), "a"), (run(tmp_path / "b", text='dogs &amp; "cats"'), "b")])
    )
    index = tmp_path / "page.html"
    index.write_bytes(render_page(asked, key.name))
    clicks = "document.getElementById('two').click();" * (len(asked) - 1) + "document.getElementById('one').click();"
    found = after(index, clicks + "document.title += ' ' + document.getElementById('text').value;", tmp_path / "p")
    saved = re.search(r"\{\s*\"page\".*?\}\s*\}", found.text, re.DOTALL)
    assert saved
    answers = read_answers(saved[0].encode(), "x.json")
    assert answers.chosen == {one.name: 2 for one in asked[:-1]} | {asked[-1].name: 1}
    assert score_answers([answers], key, 100).answered == len(asked)
