"""Contact sheets: what they show of each unit, of which units, and what a run says whose exemplars are gone."""

import base64
import io
import re
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from openmaia.core.images import EncodedImage
from openmaia.core.services import LEVELS, ActivationCounts, Exemplar, ExemplarKind, UnitExemplars, UnitState
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser import write_report
from openmaia.reporting.browser.sheets import render_sheet, write_sheets
from openmaia.reporting.browser.strips import STRIP_SIDE
from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX
from openmaia.runs.files import safe
from openmaia.runs.run import Run
from tests.reporting.making import HOSTILE, Page, run

HOSTILE_LAYER = "../..\\<b>layer</b> 100%?#&\"'"
STATES: dict[int, UnitState] = {3: "dead", 4: "not finite"}
IMAGES = 12


def white(number: int) -> EncodedImage:
    """Almost white, so that what is darkened shows; no two alike."""
    pixels = np.full((120, 120, 3), 240, dtype=np.uint8)
    pixels[:8, : 8 * number + 8] = 250
    return EncodedImage.of(pixels)


def unit_exemplars(target: str, layer: str, index: int, with_maps: bool = True) -> UnitExemplars:
    """Above the threshold in the left half of the image."""
    small = np.zeros((6, 6), dtype=np.float32)
    small[:, :3] = 10
    kinds: Sequence[tuple[ExemplarKind, int]] = [
        *(("top", rank) for rank in range(IMAGES)),
        ("bottom", 0),
        *(("levels", level) for level in (0, 13, LEVELS - 1)),
    ]
    return UnitExemplars(
        unit=Unit(target=target, layer=layer, index=index),
        threshold=5.125,
        maxima=np.linspace(0, 42, 101),
        mean=1.0,
        std=1.0,
        counts=ActivationCounts(values=np.array([0.5, 20.0, 41.5]), images=np.array([900, 99, 1])),
        exemplars=tuple(
            Exemplar(
                kind=kind, rank=rank, activation=42.5 - rank + index, image=white(rank), box=(0.0, 0.0, 120.0, 120.0),
                map=small if with_maps else None,
            )
            for kind, rank in kinds
        ),
        state=STATES.get(index, "ok"),
    )  # fmt: skip


def store(
    root: Path, *, layer: str = "layer4", target: str = "net", units: int = 5, maps: bool = True
) -> ExemplarStore:
    made = ExemplarStore.at(str(root), "net", "packages")
    made.claim({"quantile": 0.99})
    made.write(layer, [unit_exemplars(target, layer, index, maps) for index in range(units)])
    return made


def pointing(made: Run, exemplars: Path) -> Run:
    """The run as if its exemplars had been in that folder."""
    config = made.config()
    config["paths"]["exemplars"] = str(exemplars)
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    return made


def reported(folder: Path, **options: str) -> Page:
    """The sheet of a run of five units whose exemplars are there."""
    layer = options.get("layer", "layer4")
    store(folder / "exemplars", layer=layer, target="net")
    write_report([pointing(run(folder, **options), folder / "exemplars")])
    return Page((folder / "tiny/report/exemplars/net" / safe(layer) / "1.html").read_text())


def images(page: Page) -> list[Image.Image]:
    sources = [image["src"] for image in page.all("img")]
    assert all(source.startswith(DATA_URI_PREFIX) for source in sources)
    return [Image.open(io.BytesIO(base64.b64decode(source.removeprefix(DATA_URI_PREFIX)))) for source in sources]


# -- what a sheet shows --------------------------------------------------------------------------------------------------


def test_every_unit_has_its_numbers_and_its_state(tmp_path: Path):
    made = store(tmp_path)
    html = render_sheet(made, "net", "layer4", [0, 2, 3, 4]).decode()
    rows = re.findall(r'<section class="row" id="unit-(\d+)">(.*?)</section>', html, re.DOTALL)
    assert [index for index, _ in rows] == ["0", "2", "3", "4"]
    for index, row in rows:
        text = Page(row).text
        assert "5.125" in text
        assert f"{42.5 + int(index):.4g}" in text
        assert ("dead" in text, "not finite" in text) == (index == "3", index == "4")
    assert "0.99 quantile" in Page(html).text


def test_images_are_small_webp_the_highest_first(tmp_path: Path):
    page = Page(render_sheet(store(tmp_path), "net", "layer4", [0, 1]).decode())
    shown = images(page)
    assert len(shown) == 2 * 10
    assert {image.format for image in shown} == {"WEBP"}
    assert {image.size for image in shown} == {(STRIP_SIDE, STRIP_SIDE)}
    brightness = [np.asarray(image)[:4].mean() for image in shown[:10]]
    assert brightness == sorted(brightness), "white(0) has the shortest bar"


def test_mask_is_outlined_and_can_be_hidden(tmp_path: Path):
    html = render_sheet(store(tmp_path), "net", "layer4", [0]).decode()
    outlines = [path["d"] for path in Page(html).all("path")]
    assert len(outlines) == 10
    xs = [float(number) for number in re.findall(r"[\d.]+", outlines[0])[::2]]
    assert min(xs) < 10 and 450 < max(xs) < 600, "the unit exceeds its threshold in the left half"
    assert [box["id"] for box in Page(html).all("input")] == ["masks"]


def test_layer_without_space_has_nothing_to_mask(tmp_path: Path):
    page = Page(render_sheet(store(tmp_path, maps=False), "net", "layer4", [0]).decode())
    assert len(page.all("img")) == 10
    assert not page.all("path") and not page.all("input")


def test_unit_that_cannot_be_read_says_so_and_the_others_are_shown(tmp_path: Path):
    page = Page(render_sheet(store(tmp_path), "net", "layer4", [0, 77]).decode())
    assert "holds no exemplars of net/layer4/77" in page.text
    assert len(page.all("img")) == 10


def test_image_that_cannot_be_decoded_costs_its_unit_only(tmp_path: Path):
    made = store(tmp_path)
    (path,) = tmp_path.rglob("*.pictures.arrow")
    data = path.read_bytes()
    at = data.index(b"WEBP", 0)
    path.write_bytes(data[: at - 8] + b"XXXX" + data[at - 4 :])
    page = Page(render_sheet(made, "net", "layer4", [0, 1]).decode())
    assert page.text.count("not a readable image") in (1, 2)
    assert len(re.findall("unit-", render_sheet(made, "net", "layer4", [0, 1]).decode())) == 2


def test_sheet_has_a_bounded_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("openmaia.reporting.browser.sheets.SHEET_BYTES", 2000)
    page = Page(render_sheet(store(tmp_path), "net", "layer4", [0, 1, 2]).decode())
    assert 0 < sum(len(image["src"]) for image in page.all("img")) < 4_000
    assert "not kept on this page" in page.text


def test_more_units_than_a_sheet_holds_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="65 units on one sheet; at most 64"):
        render_sheet(store(tmp_path), "net", "layer4", range(65))


# -- of a run ------------------------------------------------------------------------------------------------------------


def test_run_has_a_sheet_of_its_units_that_leads_to_their_pages(tmp_path: Path):
    page = reported(tmp_path)
    assert [section["id"] for section in page.all("section")] == [f"unit-{n}" for n in range(5)]
    here = tmp_path / "tiny/report/exemplars/net/layer4"
    targets = [(here / urllib.parse.unquote(link["href"])).resolve() for link in page.all("a")]
    assert all(target.is_file() for target in targets)
    root = tmp_path / "tiny/report"
    assert {t.relative_to(root).as_posix() for t in targets} == {"index.html", *(f"units/net/layer4/{n}-0.html" for n in range(3))}  # fmt: skip
    index = Page((root / "run.html").read_text())
    assert "exemplars/net/layer4/1.html" in [link["href"] for link in index.all("a")]


def test_hostile_names_stay_names(tmp_path: Path):
    page = reported(tmp_path, layer=HOSTILE_LAYER)
    assert f"Exemplars of {HOSTILE_LAYER}" in page.text
    root = tmp_path / "tiny/report"
    index = Page((root / "run.html").read_text())
    (link,) = [a["href"] for a in index.all("a") if a["href"].startswith("exemplars/")]
    assert (root / urllib.parse.unquote(link)).is_file()
    for found in (page, index):
        assert all(not name.startswith("on") and name != "style" for _, given in found.elements for name in given)
        (policy,) = [m["content"] for m in found.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; img-src ") and "unsafe" not in policy
    assert not page.all("script")
    assert all(name != "b" for name, _ in page.elements if name == "b") or HOSTILE_LAYER in page.text


def test_texts_of_a_hostile_store_do_not_become_markup(tmp_path: Path):
    made = store(tmp_path, layer="layer4")
    made.files.write("manifest.json", made.files.read("manifest.json").replace(b"0.99", b'"<script>1</script>"'))  # pyright: ignore[reportOptionalMemberAccess]
    page = Page(render_sheet(made, HOSTILE, "layer4", [0]).decode())
    assert not page.all("script")
    assert HOSTILE in page.text


def test_without_the_exemplars_the_report_says_so_in_one_line_and_goes_on(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "gone")
    index = Page((write_report([made]).parent / "run.html").read_text())
    assert f"No exemplars of layer4 are in {tmp_path}/gone/net/packages (any more)" in index.text
    assert (tmp_path / "tiny/report/index.html").is_file()
    assert not (tmp_path / "tiny/report/exemplars").exists()


@pytest.mark.parametrize("damage", ["no key", "another version", "damaged manifest", "another layer", "no place"])
def test_exemplars_that_cannot_be_used_are_as_good_as_gone(tmp_path: Path, damage: str):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    found = store(tmp_path / "exemplars", layer="layer3" if damage == "another layer" else "layer4")
    config = made.config()
    if damage == "no key":
        del config["paths"]["exemplars"]
    elif damage == "no place":
        config["paths"]["exemplars"] = "nowhere://x"
    elif damage == "another version":
        found.files.write("manifest.json", b'{"version": 1}')
    elif damage == "damaged manifest":
        found.files.write("manifest.json", b"{")
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    index = Page((write_report([made]).parent / "run.html").read_text())
    assert index.text.count("No exemplars of layer4 are in") == 1
    assert (tmp_path / "tiny/report/index.html").is_file()


def test_many_units_are_divided_among_sheets(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars", units=70)
    made.set_plan([Unit(target="net", layer="layer4", index=index) for index in range(69, -1, -1)], 2)
    index = Page((write_report([made]).parent / "run.html").read_text())
    root = tmp_path / "tiny/report"
    links = [link["href"] for link in index.all("a") if link["href"].startswith("exemplars/")]
    pages = [Page((root / link).read_text()) for link in links]
    assert [len(page.all("section")) for page in pages] == [64, 6]
    assert pages[1].all("section")[0]["id"] == "unit-64"
    assert ("0 to 63" in index.text, "64 to 69" in index.text) == (True, True)
    assert {a["href"] for a in pages[0].all("a") if a.get("rel")} == {"2.html"}
    assert {a["href"] for a in pages[1].all("a") if a.get("rel")} == {"1.html"}
    assert (root / links[0]).stat().st_size < 6_500_000


def test_only_sheets_of_what_changed_are_written_again(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    write_report([made])
    (page,) = (tmp_path / "tiny/report/exemplars").rglob("*.html")
    before = page.stat().st_mtime_ns
    write_report([made])
    assert page.stat().st_mtime_ns == before
    time.sleep(0.01)
    store(tmp_path / "exemplars", maps=False)
    write_report([made])
    assert page.stat().st_mtime_ns > before
    assert len(Page(page.read_text()).all("img")) == 5 * 10
    page.unlink()
    write_report([made])
    assert page.exists()


def test_several_runs_keep_their_sheets_apart(tmp_path: Path):
    one, two = (pointing(run(tmp_path / name), tmp_path / "exemplars") for name in "ab")
    store(tmp_path / "exemplars")
    index = write_report([one, two])
    links = [a["href"] for a in Page((index.parent / "run.html").read_text()).all("a") if "exemplars/" in a["href"]]
    assert len(set(links)) == 2
    for link in links:
        page = index.parent / urllib.parse.unquote(link)
        for inner in Page(page.read_text()).all("a"):
            assert (page.parent / urllib.parse.unquote(inner["href"])).resolve().is_file()


def test_whole_layers_have_sheets_without_any_run(tmp_path: Path):
    made = store(tmp_path, units=66)
    made.write(HOSTILE_LAYER, [unit_exemplars("net", HOSTILE_LAYER, 7)])
    first = [Path(page) for page in write_sheets(made, "net", ["layer4", HOSTILE_LAYER, "layer4"])]
    assert [len(Page(path.read_text()).all("section")) for path in first] == [64, 1]
    assert len(list((tmp_path / "net/packages/sheets").rglob("*.html"))) == 3
    assert not Page(first[1].read_text()).all("a"), "there is nothing to go back to"
    assert sorted(made.layers()) == sorted([HOSTILE_LAYER, "layer4"])


def test_exemplars_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store(Path("exemplars"))
    made = run("runs")
    config = made.config()
    config["paths"] |= {"exemplars": "exemplars", "runs": "runs"}
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    monkeypatch.chdir("/")
    write_report([Run.open(str(tmp_path / "runs/tiny"))])
    assert (tmp_path / "runs/tiny/report/exemplars/net/layer4/1.html").is_file()
