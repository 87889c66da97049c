"""Contact sheets: what they show of each unit, and of which units."""

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia.core.images import EncodedImage
from openmaia.core.services import LEVELS, ActivationCounts, Exemplar, ExemplarKind, UnitExemplars, UnitState
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.sheets import render_sheet, write_sheets
from openmaia.reporting.browser.strips import STRIP_SIDE
from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX
from tests.reporting.making import HOSTILE, Page

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


# -- of whole layers ------------------------------------------------------------------------------------------------------


def test_texts_of_a_hostile_store_do_not_become_markup(tmp_path: Path):
    made = store(tmp_path, layer="layer4")
    made.files.write("manifest.json", made.files.read("manifest.json").replace(b"0.99", b'"<script>1</script>"'))  # pyright: ignore[reportOptionalMemberAccess]
    page = Page(render_sheet(made, HOSTILE, "layer4", [0]).decode())
    assert not page.all("script")
    assert HOSTILE in page.text


def test_whole_layers_have_sheets_without_any_run(tmp_path: Path):
    made = store(tmp_path, units=66)
    made.write(HOSTILE_LAYER, [unit_exemplars("net", HOSTILE_LAYER, 7)])
    first = [Path(page) for page in write_sheets(made, "net", ["layer4", HOSTILE_LAYER, "layer4"])]
    assert [len(Page(path.read_text()).all("section")) for path in first] == [64, 1]
    assert len(list((tmp_path / "net/packages/sheets").rglob("*.html"))) == 3
    assert not Page(first[1].read_text()).all("a"), "there is nothing to go back to"
    assert sorted(made.layers()) == sorted([HOSTILE_LAYER, "layer4"])
