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
from openmaia.runs.control import read_orders
from openmaia.runs.lease import held
from openmaia.runs.run import InvestigationId, Run
from tests.reporting.making import HOSTILE, Page, record, run, turns


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
    plain, marked = (client.get(f"/units/net/layer4/0-0{end}").content for end in (".webp", ".part.webp"))
    assert plain[8:12] == marked[8:12] == b"WEBP"
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


# -- a unit that is investigated -------------------------------------------------------------------------------------


@pytest.fixture
def begun(made: Run) -> InvestigationId:
    """One that has completed two turns."""
    investigation = next(each for each in made.pending() if each.unit.index == 4)
    for each in turns(HOSTILE)[:2]:
        made.journal(investigation).append(each)
    return investigation


def test_page_of_a_running_unit_tells_its_turns_and_becomes_that_of_the_finished_one(
    begun: InvestigationId, made: Run, client: TestClient
):
    address = f"/units/{begun.path}.html"
    page = Page(client.get(address).text)
    (body,) = [attributes for tag, attributes in page.elements if tag == "body"]
    assert (body["data-going"], body["data-state"], body["data-turns"]) == ("1", "running", "2")
    assert "Being investigated" in page.text and "Drew 1 image" in page.text and "not tested" not in page.text
    assert len([each for each in page.all("details") if each.get("class") == "turn"]) == 2
    assert all("owned" not in attributes.get("onerror", "") for _, attributes in page.elements)
    counted = client.get(f"/data/turns/units/{begun.path}.json").json()
    assert counted == {"state": "running", "turns": 2}
    made.journal(begun).append(turns("x")[2])
    assert client.get(f"/data/turns/units/{begun.path}.json").json() == {"state": "running", "turns": 3}
    config = dataclasses.replace(load(["name=tiny", "units=all", "target.name=net"]))
    made.publish(record(begun.unit, config, text="striped things"))
    assert client.get(f"/data/turns/units/{begun.path}.json").json() == {"state": "answer", "turns": 0}
    after = Page(client.get(address).text)
    assert "striped things" in after.text and "Being investigated" not in after.text


def test_page_of_a_failed_unit_says_why_and_what_it_did(begun: InvestigationId, made: Run, client: TestClient):
    made.fail(begun, f"ServiceError: no room {HOSTILE}")
    page = Page(client.get(f"/units/{begun.path}.html").text)
    assert "The investigation failed" in page.text and "no room" in page.text and "Drew 1 image" in page.text
    assert client.get("/data/turns/units/net/layer4/99-0.json").status_code == 404


def test_report_that_is_written_has_no_page_of_a_running_unit(begun: InvestigationId, made: Run):
    write_report([made])
    assert made.files.exists("report/units/net/layer4/0-0.html")
    assert not made.files.exists(f"report/units/{begun.path}.html")


# -- orders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def commanding(made: Run) -> Iterator[TestClient]:
    with TestClient(application([made], token=TOKEN, allows=["control"]), base_url="http://127.0.0.1") as opened:
        opened.get(f"/?token={TOKEN}", headers=BROWSER)
        yield opened


def order(action: str = "pause", unit: str = "", run: str = "tiny") -> dict[str, str]:
    return {"run": run, "action": action, "unit": unit}


def test_pages_give_orders_only_if_the_server_was_started_so(commanding: TestClient, guarded: TestClient, made: Run):
    page = commanding.get("/")
    assert 'id="orders"' in page.text and "connect-src" in page.text
    assert 'id="again"' in commanding.get("/units/net/layer4/0-0.html").text
    guarded.get(f"/?token={TOKEN}", headers=BROWSER)
    assert 'id="orders"' not in guarded.get("/").text
    assert 'id="again"' not in guarded.get("/units/net/layer4/0-0.html").text
    assert guarded.post("/control", json=order()).status_code == 405
    with pytest.raises(ValueError, match="token"):
        application([made], allows=["control"])


def test_orders_reach_the_run(commanding: TestClient, made: Run):
    with held(made.investigations):
        assert commanding.post("/control", json=order()).json() == {}
        paused = read_orders(made).pause
        assert paused is not None and paused.words in commanding.get("/data/live.js").text
        assert commanding.post("/control", json=order("resume")).status_code == 200
        assert commanding.post("/control", json=order("stop")).status_code == 200
        assert commanding.post("/control", json=order("retry", "layer4/0")).status_code == 200
        orders = read_orders(made)
    assert orders.pause is None and orders.stop is not None
    assert [each.name for each in orders.retries] == ["layer4/0"]


def test_order_that_cannot_be_obeyed_is_refused_with_the_reason(commanding: TestClient):
    answer = commanding.post("/control", json=order())
    assert answer.status_code == 409 and "no command executes" in answer.json()["error"]
    for wrong in (order("retry"), order("retry", "layer4/99"), order("rm"), order("pause", "layer4/0"), order(run="x")):
        assert commanding.post("/control", json=wrong).status_code == 409


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://attacker.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"host": "attacker.example"}, 400),
        ({"cookie": ""}, 403),
    ],
)
def test_order_of_another_site_is_refused(commanding: TestClient, made: Run, headers: dict[str, str], status: int):
    with held(made.investigations):
        if "cookie" in headers:
            commanding.cookies.clear()
        answer = commanding.post("/control", json=order(), headers={"origin": "http://127.0.0.1"} | headers)
        assert answer.status_code == status
        assert read_orders(made).pause is None


def test_request_that_is_no_order_is_refused(commanding: TestClient):
    kind = {"content-type": "application/json"}
    for body in (b"", b"{", b"[]", b"7", b'{"run": "tiny"}', b'{"run": 1, "action": "pause", "unit": ""}', b"[" * 1900):
        assert commanding.post("/control", content=body, headers=kind).status_code == 400, body
    assert commanding.post("/control", content=b" " * 3000, headers=kind).status_code == 413


# -- votes ------------------------------------------------------------------------------------------------------------


def test_pages_take_votes_only_if_the_server_was_started_so(made: Run, guarded: TestClient):
    ballot = {
        "run": "tiny",
        "unit": "layer4=0",
        "person": "<b>ada</b>",
        "fit": "does not fit",
        "correction": "</q><b>x",
        "seen": "",
    }
    page = "/units/net/layer4/0-0.html"
    with TestClient(application([made], token=TOKEN, allows=["votes"]), base_url="http://127.0.0.1") as voting:
        assert voting.post("/vote", json=ballot).status_code in (401, 403)
        voting.get(f"/?token={TOKEN}", headers=BROWSER)
        assert 'name="fit"' in voting.get(page).text and 'id="again"' not in voting.get(page).text
        assert voting.post("/vote", json=ballot, headers={"Origin": "http://evil.example"}).status_code == 403
        assert voting.post("/vote", json=ballot | {"fit": 3}).status_code == 400
        assert voting.post("/vote", json=ballot | {"unit": "layer4=4"}).status_code == 409
        assert voting.post("/vote", json=ballot | {"run": "other"}).status_code == 409
        assert voting.post("/vote", json=ballot).json() == {}
        assert voting.post("/control", json=order()).status_code == 405
        shown = voting.get(page).text
        assert "&lt;/q&gt;&lt;b&gt;x" in shown and "</q><b>x" not in shown and "<b>ada" not in shown
    guarded.get(f"/?token={TOKEN}", headers=BROWSER)
    assert guarded.post("/vote", json=ballot).status_code == 405
    assert "&lt;/q&gt;&lt;b&gt;x" in guarded.get(page).text and 'name="fit"' not in guarded.get(page).text
