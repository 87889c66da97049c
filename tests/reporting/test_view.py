"""`openmaia view`: pages on demand from this machine only, a followed run, and nothing written."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from openmaia.config.loading import load
from openmaia.core.errors import StoreError
from openmaia.reporting.browser.serve import application
from openmaia.reporting.browser.write import write_report
from openmaia.runs.run import Run
from tests.reporting.making import HOSTILE, Page, record, run


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return run(tmp_path)


@pytest.fixture
def client(made: Run) -> Iterator[TestClient]:
    with TestClient(application([made]), base_url="http://127.0.0.1") as opened:
        yield opened


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_all_files_of_the_report_are_served_and_none_is_written(client: TestClient, tmp_path: Path):
    before = files(tmp_path)
    index = client.get("/")
    assert "hold" in Page(index.text).text or "tested" in Page(index.text).text
    names = ["run.html", "papers.html", "data/table.js", "data/texts-0.js", "data/live.js", "assets/index.js"]
    names += [
        "units/net/layer4/0-0.html",
        "units/net/layer4/0-0.webp",
        *(link["href"] for link in Page(index.text).all("a")),
    ]
    assert {name: client.get(f"/{name}").status_code for name in names} == dict.fromkeys(names, 200)
    assert client.get("/units/net/layer4/0-0.webp").content[8:12] == b"WEBP"
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    ["config.yaml", "..%2fconfig.yaml", "%2e%2e/config.yaml", "applications/..%2f..%2fconfig.yaml", "units/x.html"],
)
def test_nothing_else_is_served(client: TestClient, path: str):
    assert client.get(f"/{path}").status_code == 404


def test_other_names_and_methods_are_refused(client: TestClient):
    assert client.get("/", headers={"host": "attacker.example"}).status_code == 400
    assert client.post("/").status_code == 405
    assert client.get("/").headers["x-content-type-options"] == "nosniff"


def test_running_sweep_is_followed(client: TestClient, made: Run):
    before = client.get("/data/live.js").text
    assert '\\"done\\": 3' in before and '\\"planned\\": 5' in before
    pending = next(each for each in made.plan() if each.unit.index == 4)
    config = dataclasses.replace(load(["name=tiny", "units=all", "target.name=net"]))
    made.publish(record(pending.unit, config, text=HOSTILE))
    after = client.get("/data/live.js").text
    assert '\\"done\\": 4' in after and after != before
    assert "owned" in client.get("/data/table.js").text + client.get("/data/texts-0.js").text
    assert client.get("/units/net/layer4/4-0.html").status_code == 200


def test_index_of_a_going_run_says_how_far_it_is(client: TestClient):
    page = Page(client.get("/").text).text
    assert "3 of 5 done" in page and "waiting" in page
    assert "no description to test" not in page.casefold()


def test_several_runs_stand_side_by_side(tmp_path: Path):
    runs = [run(tmp_path / "a"), run(tmp_path / "b", name="other", text="another answer")]
    with TestClient(application(runs), base_url="http://127.0.0.1") as client:
        assert "another answer" in client.get("/data/texts-0.js").text
        assert client.get("/runs/other/units/net/layer4/0-0.html").status_code == 200
        page = Page(client.get("/compare.html").text)
        assert "5 of 5 units have the same verdict in both runs" in page.text
        assert "a striped cat" in page.text and "another answer" in page.text
        links = [link["href"] for link in page.all("a") if "0-0.html" in link["href"]]
        assert links == ["units/net/layer4/0-0.html", "runs/other/units/net/layer4/0-0.html"]


def test_page_names_similar_descriptions(client: TestClient):
    page = client.get("/units/net/layer4/0-0.html").text
    (name,) = [attributes["data-near"] for tag, attributes in Page(page).elements if tag == "body"]
    assert "units/net/layer4/1-0.html" in client.get(f"/data/{name}").text


@pytest.mark.parametrize("place", ["report", "report/applications", "report/applications/passwords.html"])
def test_report_and_view_follow_no_link_out_of_the_run(made: Run, tmp_path: Path, place: str):
    (outside := tmp_path / "outside").mkdir()
    (secret := outside / "passwords.html").write_text("hunter2")
    assert made.files.local
    link = made.files.local / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(secret if place.endswith(".html") else outside)
    if not place.endswith(".html"):
        with pytest.raises(StoreError, match="link"):
            write_report([made])
    try:
        with TestClient(application([made]), base_url="http://127.0.0.1") as client:
            assert "hunter2" not in client.get("/applications/passwords.html").text
    except StoreError as error:
        assert "link" in error.message
    assert list(outside.iterdir()) == [secret]


TOKEN = "secret-t0ken"
BROWSER = {"accept": "text/html,*/*"}


@pytest.fixture
def guarded(made: Run) -> Iterator[TestClient]:
    with TestClient(application([made], token=TOKEN), base_url="http://127.0.0.1") as opened:
        yield opened


def test_nothing_is_shown_without_the_token(guarded: TestClient):
    paths = ["/", "/data/table.js", "/units/net/layer4/0-0.html", "/assets/index.js", "/nowhere"]
    queries = ["", "?token=", "?token=other", "?token=%ff%00", "?TOKEN=secret-t0ken"]
    for address in [path + query for path in paths for query in queries]:
        answer = guarded.get(address, headers=BROWSER)
        assert answer.status_code == 403 and "This address needs a token" in answer.text and not answer.cookies
        assert "tested" not in answer.text and TOKEN not in answer.text


def test_browser_gets_a_cookie_and_an_address_without_the_token(guarded: TestClient):
    answer = guarded.get(f"/run.html?a=%26&token={TOKEN}", headers=BROWSER, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run.html?a=%26")
    assert {"httponly", "samesite=lax"} <= set(answer.headers["set-cookie"].lower().split("; "))
    assert guarded.get("/run.html").status_code == 200
    assert guarded.get("/units/net/layer4/0-0.html").status_code == 200
    guarded.cookies.clear()
    guarded.cookies.set("openmaia-token", TOKEN)
    assert guarded.get("/run.html").status_code == 403


def test_program_gives_the_token_with_each_address(guarded: TestClient):
    assert guarded.get(f"/data/table.js?token={TOKEN}").status_code == 200
    assert guarded.get("/data/table.js").status_code == 403


def test_token_leads_to_no_other_host(guarded: TestClient):
    for path in ("//attacker.example/", "///attacker.example", "/%2fattacker.example"):
        address = f"http://127.0.0.1{path}?token={TOKEN}"
        answer = guarded.get(address, headers=BROWSER, follow_redirects=False)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/attacker.example")


def test_token_does_not_replace_the_check_of_the_host(guarded: TestClient):
    assert guarded.get(f"/?token={TOKEN}", headers={"host": "attacker.example"}).status_code == 400


@pytest.mark.slow
def test_command_prints_an_address_with_a_token_that_opens_it(made: Run):
    command = [sys.executable, "-m", "openmaia.cli.main", "view", made.files.root, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(
                r"view: (http://127\.0\.0\.1:\d+/)(\?token=[\w-]{20,}) .*\n", process.stdout.readline()
            )
            assert found is not None
            assert httpx2.get(found[1]).status_code == 403
            assert httpx2.get(found[1] + found[2]).status_code == 200
        finally:
            process.terminate()
