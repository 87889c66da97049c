"""Libraries: an index or none, a saved division or none, and packages from disk."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from openmaia.errors import StoreError, UsageError
from openmaia.pictures import index, packages, sources, split
from openmaia.pictures.library import Library

from . import making


def plain_folder(root: Path, count: int = 12) -> Path:
    for seed in range(count):
        making.save(root / "class" / f"{seed}.png", making.picture(seed, (32, 32)))
    return root


def test_a_plain_folder_is_all_photos_without_captions(tmp_path: Path) -> None:
    library = Library.open(plain_folder(tmp_path))
    photos = library.photos("explore") + library.photos("test")
    assert len(photos) == 12
    assert {(item.caption, item.category) for item in photos} == {("", "")}
    assert library.cutouts("explore") == library.textures("test") == []
    assert photos[0].load().mode == "RGB"


def test_the_division_is_saved_and_used(tmp_path: Path) -> None:
    first = Library.open(plain_folder(tmp_path))
    saved = (tmp_path / split.FILE).stat().st_mtime_ns
    assert Library.open(tmp_path) == first
    assert (tmp_path / split.FILE).stat().st_mtime_ns == saved


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "openmaia-split-1"}', "null"])
def test_a_damaged_division_is_made_anew(tmp_path: Path, text: str) -> None:
    first = Library.open(plain_folder(tmp_path))
    (tmp_path / split.FILE).write_text(text)
    assert Library.open(tmp_path) == first


def test_a_division_that_names_files_outside_is_not_believed(tmp_path: Path) -> None:
    first = Library.open(plain_folder(tmp_path))
    document = json.loads((tmp_path / split.FILE).read_text())
    document["files"][0][0] = "../../etc/passwd"
    (tmp_path / split.FILE).write_text(json.dumps(document))
    assert Library.open(tmp_path) == first


def test_a_changed_folder_is_divided_anew_and_the_others_stay(tmp_path: Path) -> None:
    before = {item.source: item.half for item in Library.open(plain_folder(tmp_path)).items}
    making.save(tmp_path / "new.png", making.picture(99))
    after = {item.source: item.half for item in Library.open(tmp_path).items}
    assert len(after) == 13
    assert {path: after[path] for path in before} == before


def test_a_folder_one_may_not_write_to_works(tmp_path: Path) -> None:
    plain_folder(tmp_path)
    (tmp_path / split.FILE).mkdir()  # root may write anywhere, but replace a folder by a file nobody may
    assert Library.open(tmp_path) == Library.open(tmp_path)


@pytest.mark.parametrize("name", ["split.json", "index.json"])
@pytest.mark.parametrize("text", ['{"train": ["a.png"]}', "[1,2"])
def test_files_of_the_datasets_own_are_left_as_they_are(tmp_path: Path, name: str, text: str) -> None:
    plain = Library.open(plain_folder(tmp_path)).items
    (tmp_path / name).write_text(text)
    assert Library.open(tmp_path).items == plain
    assert (tmp_path / name).read_text() == text


def test_skipped_files_are_remembered(tmp_path: Path) -> None:
    plain_folder(tmp_path)
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xffnothing")
    assert Library.open(tmp_path).skipped == Library.open(tmp_path).skipped == {"corrupt": 1}


def test_a_missing_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        Library.open(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        Library.open(tmp_path / "file")


def test_an_index_tells_kinds_captions_and_categories(tmp_path: Path) -> None:
    cutout = making.picture(1).convert("RGBA")
    cutout.putalpha(120)
    making.save(tmp_path / "cutouts" / "animals" / "frog.png", cutout)
    path = "cutouts/animals/frog.png"
    entry = index.IndexEntry(
        path=path, kind="cutout", caption="A frog.", category="animals", package="p", licence="GPL-2"
    )
    index.write(tmp_path, [entry], {"p": "1"})
    library = Library.open(tmp_path)
    (item,) = library.cutouts("explore") + library.cutouts("test")
    assert (item.caption, item.category, item.load().mode) == ("A frog.", "animals", "RGBA")


def test_a_foreign_index_is_no_index_and_a_broken_one_is_named(tmp_path: Path) -> None:
    plain_folder(tmp_path)
    (tmp_path / "index.json").write_text('{"classes": ["cat", "dog"]}')
    assert len(Library.open(tmp_path).items) == 12
    (tmp_path / "index.json").write_text('{"format": "openmaia-pictures-1", "files": [{"path": 3}]}')
    with pytest.raises(StoreError, match="damaged"):
        Library.open(tmp_path)


def test_a_prepared_library_of_1500_pictures_opens_at_once(tmp_path: Path) -> None:
    data = making.save(tmp_path / "0.png", making.picture(1, (16, 16))).read_bytes()
    for number in range(1, 1500):
        (tmp_path / f"{number}.png").write_bytes(data)
    Library.open(tmp_path)
    durations: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        Library.open(tmp_path)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.3


def stamp_tree(share: Path) -> Path:
    """A share folder as Tux Paint's package has it."""
    root = share / "tuxpaint" / "stamps"
    photographed = making.picture(1, (90, 80)).convert("RGBA")
    photographed.putalpha(Image.radial_gradient("L").resize((90, 80)).point([255] * 128 + [0] * 128))
    drawn = Image.new("RGBA", (90, 80), (200, 10, 10, 255))
    for name in ("animals/frog", "animals/frog_mirror", "animals/cartoon/frog", "symbols/frog"):
        making.save(root / f"{name}.png", photographed)
    making.save(root / "animals" / "drawn.png", drawn)
    making.save(root / "animals" / "tiny.png", making.picture(2, (30, 30)).convert("RGBA"))
    (root / "animals" / "frog.txt").write_text("A frog.\nde.utf8=Ein Frosch.\n")
    return share


def test_only_photographed_stamps_are_used(tmp_path: Path) -> None:
    (found,) = sources.stamps(stamp_tree(tmp_path))
    assert (found.category, found.name, found.caption) == ("animals", "frog", "A frog.")


def test_gcompris_pictures_come_out_of_their_resource_files(tmp_path: Path) -> None:
    photo = making.save(tmp_path / "a.webp", making.picture(1)).read_bytes()
    strip = making.save(tmp_path / "b.webp", making.picture(2, (160, 60)).convert("RGBA")).read_bytes()
    archives = tmp_path / "gcompris-qt" / "rcc"
    archives.mkdir(parents=True)
    for activity, tree in {
        "erase": {"resource": {"red_panda.webp": photo}},
        "clickgame": {"resource": {"f00.webp": strip, "sea1.webp": photo, "clickgame.svg": b"<svg/>"}},
    }.items():
        document: making.Tree = {"gcompris": {"src": {"activities": {activity: tree}}}}
        (archives / f"{activity}.rcc").write_bytes(making.resource(document))
    found = {item.name: item for item in sources.gcompris(tmp_path)}
    assert {name: (item.kind, item.caption) for name, item in found.items()} == {
        "red_panda": ("photo", "A red panda."),
        "f00": ("cutout", "A fish."),
        "sea1": ("photo", "The bottom of the sea."),
    }
    assert found["red_panda"].data == photo


def test_without_apt_the_pictures_of_pip_packages_are_used_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skimage")
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    root = packages.fetch(tmp_path / "cache", said.append)
    assert "apt-get" in said[0]
    assert "pip" in said[0]
    library = Library.open(root)
    assert library.photos("explore")
    assert library.photos("test")
    assert packages.fetch(tmp_path / "cache", said.append) == root
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_parallel_callers_get_one_library(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    code = (
        "import sys; from pathlib import Path; from openmaia.pictures import packages;"
        "print(packages.fetch(Path(sys.argv[1]), lambda _: None))"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate(timeout=120)[0].strip() for process in running}
    assert len(answers) == 1
    assert (Path(answers.pop()) / "index.json").is_file()


def fetched() -> Path | None:
    """The library of packages where an earlier run left one: tests download nothing."""
    caches = [os.environ.get("OPENMAIA_CACHE"), Path.home() / ".cache" / "openmaia"]
    roots = [Path(cache) / "packages-v1" for cache in caches if cache]
    return next((root for root in roots if (root / "index.json").is_file()), None)


def test_the_fetched_library_is_whole() -> None:
    root = fetched()
    if root is None:
        pytest.skip("no fetched library: set OPENMAIA_CACHE to the folder that packages.fetch filled")
    library = Library.open(root)
    assert not library.skipped
    assert len(library.items) == len(index.load(root)) > 600
    for half in ("explore", "test"):
        assert len(library.cutouts(half)) > 150
        assert len(library.photos(half)) > 100
        assert len(library.textures(half)) > 15
    assert all(item.caption and item.category for item in library.items)
    assert {item.load().mode for item in library.cutouts("test")} == {"RGBA"}
