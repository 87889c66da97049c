"""What a published report holds and leaves out, and how it reaches a host."""

import base64
import getpass
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from openmaia.cli.main import app
from openmaia.core.errors import ServiceError, UsageError
from openmaia.reporting.browser.publishing import Cleaner, Publication
from openmaia.reporting.browser.spaces import make_readme, space_name, upload_space
from openmaia.reporting.browser.unit.pictures import Origin
from openmaia.reporting.browser.write import write_publication
from openmaia.runs.run import Run
from tests.helpers.commands import output, refused
from tests.helpers.http import QuietHandler, serving
from tests.reporting.making import Page, run, table

SECRET = "hf_abcdefghijklmnop"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose records name a path, a store and a machine wherever a text of others can stand."""
    text = f"a cat of /home/anna/pictures/cat.png from s3://lab-bucket/data/cats, http://gpu07:8000/v1 and {SECRET}"
    return run(tmp_path_factory.mktemp("told"), text=text)


def drawn(run: Run, **sections: object) -> Run:
    """The run with other sections in its config."""
    run.files.write("config.yaml", json.dumps(run.config() | sections).encode())
    return Run.open(run.files.root)


SCENES = {"pictures": {"kind": "scenes"}, "generator": {"kind": "scenes", "size": 64, "without": []}, "editor": {"kind": "scenes"}}  # fmt: skip


@pytest.fixture(scope="module")
def published(told: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run with drawn scenes, for everybody."""
    made = drawn(told, **SCENES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", SECRET)
        return write_publication(made, Publication.of_run(made), tmp_path_factory.mktemp("published"))


def test_published_report_names_no_path_store_machine_or_secret(published: Path, told: Run):
    texts = {path.name: path.read_text() for path in published.rglob("*") if path.suffix in (".html", ".js", ".csv")}
    whole = "\n".join(texts.values())
    assert "a cat of …/cat.png from …/cats" in texts["0-0.html"]
    for private in ("/home/anna", "lab-bucket", "gpu07", SECRET, told.files.root, str(Path.home()) + "/"):
        assert private not in whole, private


def test_published_report_shows_the_units_and_drawn_images_as_small_copies(published: Path):
    columns, texts = table(published / "index.html")
    assert len(texts) == 5 and columns["verdict"].count("failed") == 1
    page = Page((published / "units/net/layer4/0-0.html").read_text())
    assert any(image.get("src", "").startswith("data:image/webp") for image in page.all("img"))
    assert not (published / "pages.json").exists()
    assert not list(published.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("sections", "withheld"),
    [
        (SCENES, set()),
        ({**SCENES, "pictures": {"kind": "packages"}}, {Origin.DATASET}),
        ({**SCENES, "pictures": {"kind": "folder", "folder": "x"}}, {Origin.DATASET}),
        ({**SCENES, "pictures": {"kind": "mine:Pictures"}}, {Origin.DATASET}),
        ({**SCENES, "generator": {"kind": "collage", "parts": "packages"}}, {Origin.DRAWN}),
        ({**SCENES, "generator": {"kind": "mine:Painter"}}, {Origin.DRAWN}),
    ],
)
def test_images_without_a_known_licence_are_withheld(
    tmp_path: Path, sections: dict[str, object], withheld: set[Origin]
):
    made = drawn(run(tmp_path), **sections)
    found = Publication.of_run(made)
    assert set(found.withheld) == withheld and len(found.notes) == len(withheld)
    assert Publication.of_run(made, "CC-BY-4.0").withheld == {}


def test_withheld_images_are_on_no_page_and_the_page_says_so(tmp_path: Path):
    made = drawn(run(tmp_path), **{**SCENES, "pictures": {"kind": "packages"}})
    root = write_publication(made, Publication.of_run(made), tmp_path / "out")
    page = (root / "units/net/layer4/0-0.html").read_text()
    own = write_publication(made, Publication.of_run(made, "CC0"), tmp_path / "licensed")
    licensed = (own / "units/net/layer4/0-0.html").read_text()
    exemplar = "top 1, activation 5"
    assert f'alt="{exemplar}"' in licensed and f'alt="{exemplar}"' not in page
    assert page.count("data:image/webp") < licensed.count("data:image/webp")
    assert "Left out: the images of the dataset" in page and "Left out" in (root / "index.html").read_text()
    assert not list(root.rglob("*.webp")) and list(own.rglob("*.webp"))


def test_cleaner_leaves_images_pages_and_numbers_alone(told: Run):
    cleaner = Cleaner(told)
    image = f'<img src="data:image/webp;base64,{base64.b64encode(bytes(range(256)) * 40).decode()}">'
    kept = f'{image}<a href="../../runs/x/y.html">3/4 of 1/2, and/or, layer.0/mlp/3</a> https://example.org/a/b'
    assert cleaner.clean("page.html", kept.encode()).decode() == kept
    assert cleaner.clean("tile.webp", b"/home/anna/x") == b"/home/anna/x"
    who = f"paused by {getpass.getuser()}@{socket.gethostname()}"
    assert cleaner.clean("a.js", who.encode()) == b"paused by ***"


def test_command_says_the_size_and_asks_before_it_writes(told: Run, tmp_path: Path):
    drawn(told, **SCENES)
    to = tmp_path / "site"
    said = CliRunner().invoke(app, ["publish", told.files.root, str(to)], input="n\n")
    assert "MB" in said.output and f"Publish this to {to}" in said.output and not to.exists()
    assert isinstance(said.exception, UsageError)
    assert f"published: {to}" in output("publish", told.files.root, str(to), "--yes")
    front, _, text = (to / "README.md").read_text().removeprefix("---\n").partition("---\n")
    facts = yaml.safe_load(front)
    assert (facts["sdk"], facts["app_file"]) == ("static", "index.html") and (to / facts["app_file"]).is_file()
    assert "5 units" in text
    assert "exists already" in refused("publish", told.files.root, str(to), "--yes")


def test_readme_names_what_is_left_out_and_the_licence(told: Run):
    packages = Publication.of_run(drawn(told, **{**SCENES, "pictures": {"kind": "packages"}}))
    assert "Left out: the images of the dataset, which come from packages" in make_readme(told, packages)
    assert "this licence of the images: CC0" in make_readme(told, Publication(licence="CC0"))


@pytest.mark.parametrize("address", ["hf://", "hf://name", "hf://a/b/c", "hf://a/b c"])
def test_address_of_a_space_has_an_owner_and_a_name(address: str):
    with pytest.raises(UsageError, match="hf://ORGANISATION/NAME"):
        space_name(address)
    assert space_name("hf://lab/demo") == "lab/demo"


@contextmanager
def hub(received: dict[str, bytes], status: int = 200) -> Iterator[str]:
    """A server that takes a Space as the hub does: made first, then files in one commit."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length else self._chunks()
            path = self.path.partition("?")[0]
            if path == "/api/repos/create":
                received["created"] = body
                self._answer({"url": f"http://{self.headers['Host']}/spaces/lab/demo"})
            elif path.endswith("/preupload/main"):
                files = [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                    for each in json.loads(body)["files"]
                ]
                self._answer({"files": files})
            elif path.endswith("/commit/main"):
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        received[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                    elif line["key"] == "deletedFile":
                        received.pop("before " + line["value"]["path"])
                self._answer(
                    {
                        "commitUrl": f"http://{self.headers['Host']}/spaces/lab/demo/commit/{'c' * 40}",
                        "commitOid": "c" * 40,
                    }
                )
            else:
                self._answer({})

        def do_GET(self) -> None:
            if "/tree/" in self.path:
                there = [name.removeprefix("before ") for name in received if name.startswith("before ")]
                self._answer([{"type": "file", "path": name, "oid": "d" * 40, "size": 1} for name in there])
            else:
                self._answer({"sha": "c" * 40, "id": "lab/demo", "siblings": []})

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, value: object) -> None:
            said = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

    with serving(Handler) as address:
        yield address


def test_space_gets_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "data/table.js").write_text("openmaia.receive()")
    received: dict[str, bytes] = {"before units/old.html": b"", "before app.py": b""}
    with hub(received) as address:
        made = upload_space(tmp_path, "lab/demo", endpoint=address, token=SECRET)
    created = json.loads(received.pop("created"))
    assert (created["type"], created["sdk"]) == ("space", "static")
    assert received.pop("before app.py") == b"", "of files that are not ours nothing is deleted"
    assert received == {"index.html": b"<!doctype html>", "data/table.js": b"openmaia.receive()"}
    assert made == f"{address}/spaces/lab/demo"


def test_hub_that_refuses_is_an_error_and_nothing_counts_as_published(tmp_path: Path):
    with hub({}, status=403) as address, pytest.raises(ServiceError, match="hf://lab/demo was not published.*HF_TOKEN"):
        upload_space(tmp_path, "lab/demo", endpoint=address, token=SECRET)
    with pytest.raises(ServiceError, match="was not published"):
        upload_space(tmp_path, "lab/demo", endpoint="http://127.0.0.1:9", token=SECRET)


def test_columns_of_numbers_stay_whole(told: Run):
    """Their base64 may begin with a slash."""
    cleaner, draw = Cleaner(told), np.random.default_rng(0)
    for _ in range(300):
        column = base64.b64encode(draw.standard_normal(200, np.float32).tobytes()).decode()
        text = f'openmaia.receiveValues("p", "f", "{column}");'.encode()
        assert cleaner.clean("data/table.js", text) == text


@pytest.mark.parametrize(
    "section",
    [
        {"exemplars": {"folder": "/home/anna/patients"}},
        {"exemplars": {"dataset": "imagenet"}},
        {"bank": {"folder": "/home/anna/patients", "images": 5}},
    ],
)
def test_images_of_a_folder_are_withheld_wherever_the_config_names_it(told: Run, section: dict[str, dict[str, object]]):
    config = told.config()
    made = drawn(told, **SCENES, **{name: config[name] | values for name, values in section.items()})
    assert Publication.of_run(made).withheld.keys() >= {Origin.DATASET}


def test_images_that_a_tool_of_the_user_may_bring_in_are_withheld(told: Run):
    made = drawn(told, **SCENES, tools=["mine:photograph"])
    assert Origin.DATASET in Publication.of_run(made).withheld
