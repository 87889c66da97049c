"""Files of a run: whole or absent, on a local disk and on an object store, and below the root whatever their names."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openmaia.core.errors import StoreError, UsageError
from openmaia.runs.files import Files, safe, unsafe
from openmaia.runs.lease import held
from tests.helpers.permissions import obeyed_permissions
from tests.helpers.samples import HOSTILE_NAMES


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A local folder, and a file system in memory, which is written like an object store."""
    made = Files(str(tmp_path / "root") if request.param == "local" else f"fsspec+memory://{tmp_path}")
    made.create()
    return made


def test_written_data_are_read(files: Files):
    files.write("a/b/c", b"long before")
    files.write("a/b/c", b"\x00data")
    assert files.read("a/b/c") == b"\x00data"
    assert files.exists("a/b/c") and not files.exists("a/b")


@pytest.mark.parametrize("name", ["layer4%2F1", "a b", "run#1", "what?", "ü"])
def test_folder_of_any_name_below_a_root_is_opened_again_by_its_own_root(files: Files, name: str):
    inside = files.inside(f"runs/{name}")
    inside.write("a", b"data")
    assert files.names("") == [f"runs/{name}/a"]
    assert Files(inside.root).read("a") == b"data"
    assert inside.above(2).root == files.root and inside.above(2).names("") == files.names("")


def test_options_of_a_url_stay_at_its_end(tmp_path: Path):
    root = Files(f"file://{tmp_path}?endpoint_override=here")
    inside = root.inside("a%2Fb c")
    inside.write("a", b"data")
    assert inside.root == f"file://{tmp_path}/a%252Fb%20c?endpoint_override=here"
    assert (tmp_path / "a%2Fb c/a").read_bytes() == Files(inside.root).read("a") == b"data"
    assert inside.above(1).root == root.root
    assert inside.name == "a%2Fb c"


def test_folder_above_a_relative_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert Files("runs/demo/evaluations/x").above(2).root == "runs/demo"
    assert Files("evaluations/x").above(2).root == str(tmp_path)


def test_missing_file_is_none(files: Files):
    assert files.read("nowhere/at/all") is None
    assert files.read_json("nowhere") is None
    assert files.names("nowhere") == []


def test_names_are_relative_sorted_and_of_whole_files(files: Files):
    for name in ("f/b/2", "f/a", "f/b/.writing-x", "g/c"):
        files.write(name, b"12")
    assert files.names("f") == ["f/a", "f/b/2"]
    assert files.sizes("f") == {"f/a": 2, "f/b/2": 2}


def test_deleted_files_are_gone(files: Files):
    files.delete("nowhere")
    files.delete_folder("nowhere")
    for name in ("f/a", "f/b", "g"):
        files.write(name, b"")
    files.delete_folder("f")
    files.delete("g")
    assert files.names("") == []


def test_others_may_read_what_the_mask_of_the_process_allows(tmp_path: Path):
    (tmp_path / "plain").write_bytes(b"x")
    Files(str(tmp_path)).write("folder/written", b"x")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("plain", "folder/written")]
    assert modes[0] == modes[1]


def test_failed_write_is_a_store_error_and_leaves_nothing(tmp_path: Path):
    files = Files(str(tmp_path))
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for name in ("file/below", "folder"):
        with pytest.raises(StoreError, match=name):
            files.write(name, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def half_written(files: Files) -> None:
    with files.writing("a") as stream:
        stream.write(b"half")
        raise KeyError


def test_block_that_fails_writes_nothing(files: Files):
    with pytest.raises(KeyError):
        half_written(files)
    assert files.names("") == []


def test_table_is_written_through_the_stream(files: Files):
    table = pa.table({"a": list(range(10))})
    with files.writing("t.parquet") as stream:
        pq.write_table(table, stream)
    assert pq.read_table(pa.BufferReader(files.read("t.parquet"))).equals(table)


@pytest.mark.parametrize("root", ["/proc/openmaia", "/dev/null/x", "s4://bucket/x", "://", "file:///proc/x"])
def test_unusable_root_is_a_usage_error(root: str):
    with pytest.raises(UsageError) as caught:
        Files(root).create()
    assert root in caught.value.message


WRITER = """
import sys
from openmaia.runs.files import Files
files = Files(sys.argv[1])
print("ready", flush=True)
count = 0
while True:
    count += 1
    for name in ("a", "b/c"):
        files.write(name, bytes([count % 256]) * 300_000)
"""


def test_closed_folder_is_a_store_error(tmp_path: Path):
    files = Files(str(tmp_path))
    files.write("closed/a", b"1")
    (tmp_path / "closed").chmod(0)
    with obeyed_permissions():
        for attempt in (files.read, files.exists, files.delete, files.sizes, files.folders):
            with pytest.raises(StoreError, match=r"closed(/a)? could not be .*Permission denied"):
                attempt("closed/a" if attempt in (files.read, files.exists, files.delete) else "closed")
    (tmp_path / "closed").chmod(0o700)


def test_killed_writer_leaves_whole_files(tmp_path: Path):
    files = Files(str(tmp_path))
    for kill in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.013 * kill)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for name in files.names(""):
            data = files.read(name) or b""
            assert (len(data), len(set(data))) == (300_000, 1)
    assert files.names("") and set(files.names("")) <= {"a", "b/c"}


def test_hostile_name_becomes_one_component():
    for name in HOSTILE_NAMES:
        component = safe(name)
        assert "/" not in component and not component.startswith(".") and component.isprintable()
        assert unsafe(component) == name


@pytest.fixture
def linked(tmp_path: Path) -> Files:
    """A run directory with links to a folder and a file outside of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    root = tmp_path / "run"
    (root / "records").mkdir(parents=True)
    (root / "report").symlink_to(outside)
    (root / "records/link").symlink_to(outside / "file")
    return Files(str(root)).confined()


@pytest.mark.parametrize(
    "use",
    [
        lambda files: files.read("report/file"),
        lambda files: files.read("records/link"),
        lambda files: files.read("../outside/file"),
        lambda files: files.open("report/file"),
        lambda files: files.mapped("records/link"),
        lambda files: files.exists("report/file"),
        lambda files: files.names("report"),
        lambda files: files.names(""),
        lambda files: files.folders("report"),
        lambda files: files.write("report/index.html", b"x"),
        lambda files: files.write("report/new/index.html", b"x"),
        lambda files: files.delete("report/file"),
        lambda files: files.delete_folder("report"),
        lambda files: files.move("report/file", "here"),
        lambda files: files.move("records/link", "report/there"),
        lambda files: files.inside("report").write("index.html", b"x"),
        lambda files: files.inside("records").above(1).read("report/file"),
    ],
)
def test_link_does_not_lead_out_of_a_run_directory(linked: Files, tmp_path: Path, use: Callable[[Files], object]):
    with pytest.raises(StoreError, match="link"):
        use(linked)
    assert [each.name for each in (tmp_path / "outside").iterdir()] == ["file"]


def test_file_replaces_a_link_and_not_what_it_leads_to(linked: Files, tmp_path: Path):
    linked.write("records/link", b"own")
    assert linked.read("records/link") == b"own" and (tmp_path / "outside/file").read_text() == "secret"


def test_link_in_place_of_a_lock_does_not_empty_a_file(linked: Files, tmp_path: Path):
    for name in (".driver.lock", ".adding.lock"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "outside/file")
        with pytest.raises(StoreError, match="link"):
            linked.lock_file(name)
    with pytest.raises(StoreError, match="link"), held(linked):
        pass
    assert (tmp_path / "outside/file").read_text() == "secret"


def test_links_in_circles_end(linked: Files, tmp_path: Path):
    for name in ("a", "b", "c"):
        (tmp_path / "run/records" / name).symlink_to("..")
    with pytest.raises(StoreError, match="link to a folder"):
        linked.names("records")


def test_run_directory_may_be_a_link_itself(tmp_path: Path):
    (tmp_path / "elsewhere/records").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    files = Files(str(tmp_path / "run")).confined()
    files.write("records/a", b"1")
    assert files.names("") == ["records/a"] and files.inside("records").read("a") == b"1"
