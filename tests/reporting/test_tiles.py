"""Tiles of the wall: where their images come from, when they are drawn again, and what a run says whose exemplars are gone."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from openmaia.core.units import Unit
from openmaia.reporting.browser.tiles import TILE_SIDE
from openmaia.reporting.browser.write import write_report
from openmaia.runs.files import safe
from openmaia.runs.run import Run
from tests.reporting.making import Page, run, table
from tests.reporting.test_sheets import HOSTILE_LAYER, store


def pointing(made: Run, exemplars: Path) -> Run:
    """The run as if its exemplars had been in that folder."""
    config = made.config()
    config["paths"]["exemplars"] = str(exemplars)
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    return made


def tile(root: Path, layer: str = "layer4", index: int = 0) -> Path:
    return root / f"tiny/report/units/net/{safe(layer)}/{index}-0.webp"


def shots(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The plain and the marked square."""
    return pixels(path), pixels(path.with_suffix(".part.webp"))


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        found = np.asarray(image.convert("RGB"), dtype=int)
    assert found.shape == (2 * TILE_SIDE + 2, 2 * TILE_SIDE + 2, 3)
    return found


def test_units_of_the_store_have_tiles_also_before_they_are_investigated(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    index = write_report([made])
    assert table(index)[0]["tile"] == [1] * 5
    assert all(tile(tmp_path, index=number).is_file() for number in range(5))


def test_report_made_elsewhere_takes_the_exemplars_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the other folder has some that are called the same. Once the run lies elsewhere, it takes those."""
    home, other = tmp_path / "home", tmp_path / "other"
    (home / "runs").mkdir(parents=True)
    other.mkdir()
    made = run(home / "runs")
    config = made.config()
    config["paths"] |= {"runs": "runs", "exemplars": "exemplars"}
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    store(home / "exemplars")
    store(other / "exemplars", layer="layer3")
    monkeypatch.chdir(other)
    lines = "No exemplars of layer4 are in"
    assert lines not in Page(write_report([made]).read_text()).text
    (home / "exemplars").rename(home / "moved")
    assert lines in Page(write_report([made]).read_text()).text, "those of layer3 are found"


def test_part_above_the_threshold_stays_bright_and_the_rest_is_veiled(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    write_report([made])
    plain, marked = shots(tile(tmp_path))
    inside, outside = np.s_[20:60, 5:25], np.s_[20:60, 50:68]
    assert abs(plain[inside].mean() - marked[inside].mean()) < 6, "the unit exceeds its threshold in the left half"
    assert marked[outside].mean() < plain[outside].mean() - 40


def test_layer_without_maps_has_nothing_to_mark(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars", maps=False)
    write_report([made])
    plain, marked = shots(tile(tmp_path))
    assert np.abs(plain - marked).mean() < 2


def test_without_a_store_the_images_of_the_record_are_shown_and_the_report_says_so(tmp_path: Path):
    index = write_report([pointing(run(tmp_path), tmp_path / "gone")])
    assert table(index)[0]["tile"] == [1, 1, 1, 0, 0], "the two others have no record"
    assert f"No exemplars of layer4 are in {tmp_path}/gone/net/packages (any more)" in Page(index.read_text()).text


@pytest.mark.parametrize("damage", ["no key", "another version", "damaged manifest", "another layer", "no place"])
def test_store_that_cannot_be_used_is_as_good_as_gone(tmp_path: Path, damage: str):
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
    index = write_report([made])
    assert Page(index.read_text()).text.count("No exemplars of layer4 are in") == 1
    assert table(index)[0]["tile"] == [1, 1, 1, 0, 0]


def test_image_that_cannot_be_decoded_costs_its_unit_the_store_only(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    (path,) = (tmp_path / "exemplars").rglob("*.pictures.arrow")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"WEBP", b"XXXX"))
    assert table(write_report([made]))[0]["tile"] == [1, 1, 1, 0, 0]


def test_only_tiles_of_what_changed_are_drawn_again(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    write_report([made])
    before = tile(tmp_path).stat().st_mtime_ns
    write_report([made])
    assert tile(tmp_path).stat().st_mtime_ns == before
    time.sleep(0.01)
    (units,) = (tmp_path / "exemplars").rglob("*.units.parquet")
    os.utime(units, (time.time() + 5, time.time() + 5))
    write_report([made])
    assert tile(tmp_path).stat().st_mtime_ns > before
    for path in (tile(tmp_path), tile(tmp_path).with_suffix(".part.webp")):
        path.unlink()
        write_report([made])
        assert path.is_file()


def test_hostile_layer_stays_a_name(tmp_path: Path):
    made = pointing(run(tmp_path, layer=HOSTILE_LAYER), tmp_path / "exemplars")
    store(tmp_path / "exemplars", layer=HOSTILE_LAYER)
    write_report([made])
    assert tile(tmp_path, HOSTILE_LAYER).is_file()
    assert {path.relative_to(tmp_path / "tiny/report").parts[0] for path in tmp_path.rglob("*.webp")} == {"units"}


def test_exemplars_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store(Path("exemplars"))
    made = run("runs")
    config = made.config()
    config["paths"] |= {"exemplars": "exemplars", "runs": "runs"}
    made.files.write("config.yaml", yaml.safe_dump(config).encode())
    monkeypatch.chdir("/")
    index = write_report([Run.open(str(tmp_path / "runs/tiny"))])
    assert table(index)[0]["tile"] == [1] * 5


def test_replicates_have_a_tile_each(tmp_path: Path):
    made = pointing(run(tmp_path), tmp_path / "exemplars")
    store(tmp_path / "exemplars")
    made.set_plan([Unit(target="net", layer="layer4", index=index) for index in range(5)], 2)
    assert set(table(write_report([made]))[0]["tile"]) == {1}
    assert tile(tmp_path).with_name("0-1.webp").read_bytes() == tile(tmp_path).read_bytes()
