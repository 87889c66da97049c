"""`openmaia view --live`: pictures and prompts for the network of a run, and who may ask."""

import asyncio
import base64
import io
import itertools
import json
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from starlette.testclient import TestClient

import openmaia
from openmaia.analysis.responding import rank_units
from openmaia.assembly import ConfigAssembly, generators, targets
from openmaia.assembly.asking import RunQuestions
from openmaia.config.loading import restore
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage, compute_mask
from openmaia.core.services import GeneratedImage, Generation, Intervention, LayerProbe, Probe
from openmaia.distributed.pools import kept
from openmaia.reporting.browser.serve import application
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.reporting.browser.write import write_report
from openmaia.runs.run import Run
from openmaia.serving.laboratory import SCALES, UPLOAD_PIXELS, Laboratory
from openmaia.serving.live import MAX_WAITING, MAX_WAITING_EACH, UPLOAD_BYTES, live_application
from tests.core.test_bombs import scans
from tests.helpers.chromium import CHROMIUM, browser
from tests.helpers.commands import refused
from tests.helpers.living import LAYER, UNITS, living
from tests.reporting.making import Page
from tests.reporting.test_accessibility import axe, findings

__all__ = ["living"]

TOKEN = "secret-t0ken"
UNIT = {"layer": LAYER, "index": 2}


@pytest.fixture(scope="module")
def laboratory(living: Run) -> Laboratory:
    return Laboratory.open(living)


@pytest.fixture(scope="module")
def client(living: Run, laboratory: Laboratory) -> Iterator[TestClient]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(
        live_application(living, laboratory, token=TOKEN), base_url="http://127.0.0.1", headers=headers
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def target(living: Run) -> Any:
    """Of the same config, loaded apart."""
    return targets.target(restore(living.config(), ""))


@pytest.fixture(scope="module")
def image(living: Run) -> EncodedImage:
    """The image of the dataset that excites the unit most."""
    found = find_exemplars(living).store
    assert found is not None
    return found.read(UNITS[UNIT["index"]]).of_kind("top")[0].image


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def file(size: tuple[int, int], format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(buffer, format, **options)
    return buffer.getvalue()


# -- what is answered --------------------------------------------------------------------------------------------------


def test_activation_is_that_of_probe(client: TestClient, living: Run, image: EncodedImage):
    found = client.post("/live/probe", json={**UNIT, "picture": coded(image.png)}).json()
    target = openmaia.load_models(openmaia.load(living.files.root)).target
    unit = UNITS[UNIT["index"]]
    (response,) = target.probe([Probe(unit=unit, image=image)])
    assert found["activation"] == response.value and found["image"] == image.digest
    store = find_exemplars(living).store
    assert store is not None
    known = store.read(unit)
    assert known.counts is not None and found["percent"] == known.counts.percent_below(response.value) > 90
    assert found["level"] == 27, "the strongest image of the dataset is in the last bar"
    mask = compute_mask(image.size, response.map, response.box, known.threshold)
    assert mask is not None and mask.any() and found["outline"].startswith("M")


@pytest.mark.parametrize("format", ["PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_a_picture_is_read_as_an_image_of_a_dataset(client: TestClient, target: Any, format: str):
    """Shrunk, without transparency."""
    pixels = np.random.default_rng(0).integers(0, 2, (30, 40, 1), dtype=np.uint8) * np.full(3, 255, np.uint8)
    large, buffer = Image.fromarray(pixels).resize((1200, 900), Image.Resampling.NEAREST), io.BytesIO()
    large.save(buffer, format, **({"lossless": True} if format == "WEBP" else {}))
    found = client.post("/live/probe", json={**UNIT, "picture": coded(buffer.getvalue())}).json()
    large.thumbnail((640, 640))
    (response,) = target.probe([Probe(unit=UNITS[2], image=EncodedImage.of(np.asarray(large)))])
    assert found["activation"] == response.value


def test_a_prompt_is_drawn_as_for_an_agent_and_asked_about_again(client: TestClient, living: Run):
    found = client.post("/live/probe", json={**UNIT, "prompt": "a red boat and a quark"}).json()
    assert found["missing"] == ["quark"] and found["shown"].startswith("data:image/webp;base64,")
    with openmaia.environment(
        [f"{living.files.root}/config.yaml", "viewer.kind=scenes", f"paths.runs={living.files.root}/.."]
    ) as environment:
        environment.reset(f"{LAYER}={UNIT['index']}")
        step = environment.step(
            '[HYPOTHESIS LIST]:\n1. red\n\n[CODE]:\n```python\nprint(system.call_neuron(tools.text2image(["a red boat and a quark"]))[0])\n```'
        )
    assert step.turn is not None
    (entry,) = step.turn.calls[-1].entries
    assert (entry.original, entry.activation["value"]) == (found["image"], found["activation"])  # pyright: ignore[reportOptionalSubscript]
    again = client.post("/live/probe", json={**UNIT, "image": found["image"]}).json()
    assert {**again, "missing": ["quark"]} == found


def test_units_are_those_of_the_run_in_the_order_of_rank_units(
    client: TestClient, living: Run, target: Any, image: EncodedImage
):
    found = client.post("/live/units", json={"picture": coded(image.png)}).json()
    store = find_exemplars(living).store
    assert store is not None
    known = {unit: store.read(unit) for unit in UNITS}
    ranked = rank_units(target, image, known)
    assert [(one["layer"], one["index"], one["percent"], one["activation"]) for one in found["units"]] == [
        (one.unit.layer, one.unit.index, one.percent, one.activation) for one in ranked
    ]
    assert (found["count"], found["ranked"]) == (len(UNITS), len(ranked))


def test_scaling_a_unit_gives_the_probabilities_of_intervene(client: TestClient, target: Any, image: EncodedImage):
    found = client.post("/live/effect", json={**UNIT, "picture": coded(image.png)}).json()
    effects = target.effects()
    logarithms = target.intervene([Intervention(unit=UNITS[2], image=image, scale=scale) for scale in SCALES])
    assert found["scales"] == list(SCALES) and 0 < len(found["classes"]) <= 8
    changes = [max(abs(p - one["probabilities"][1]) for p in one["probabilities"]) for one in found["classes"]]
    assert changes == sorted(changes, reverse=True) and changes[-1] >= 0.001
    at = effects.classes.index(found["classes"][0]["name"])
    ends = np.cumsum(effects.heads or (len(effects.classes),))
    head = int(np.searchsorted(ends, at, side="right"))
    own = slice(int(ends[head - 1]) if head else 0, int(ends[head]))
    expected = [float(np.exp(row)[at] / np.exp(row)[own].sum()) for row in logarithms]
    assert found["classes"][0]["probabilities"] == pytest.approx(expected)


def test_reasons_of_a_prediction_are_those_of_ask(client: TestClient, living: Run, image: EncodedImage, tmp_path: Path):
    (tmp_path / "asked.png").write_bytes(image.png)
    found = client.post("/live/why", json={"picture": coded(image.png)}).json()
    asked = RunQuestions(living).why(str(tmp_path / "asked.png"))
    assert asked.reasons is not None and found["units"]
    assert found["predicted"] == asked.reasons.predicted
    assert found["probability"] == pytest.approx(asked.reasons.probability)
    assert [(one["layer"], one["index"]) for one in found["units"]] == [
        (each.row.unit.layer, each.row.unit.index) for each in asked.units
    ]
    assert [one["effect"] for one in found["units"]] == pytest.approx([each.effect for each in asked.units])


def test_units_of_the_output_cannot_be_changed(client: TestClient):
    answer = client.post("/live/effect", json={"layer": "output", "index": 0, "picture": coded(file((96, 96)))})
    assert answer.status_code == 400 and f"those of {LAYER} can" in answer.json()["error"]


# -- who may ask, and what ---------------------------------------------------------------------------------------------


def test_other_hosts_origins_types_and_methods_are_refused(client: TestClient):
    body = {**UNIT, "prompt": "a boat"}

    def status(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(
            "/live/probe", content=json.dumps(body), headers={"content-type": "application/json"} | named
        ).status_code

    assert status() == status(origin="http://127.0.0.1", sec_fetch_site="same-origin") == 200
    assert status(host="attacker.example") == 400
    assert status(host="attacker.example", origin="http://attacker.example") == 400
    for origin in ("http://attacker.example", "http://127.0.0.1:9999", "null", "", "http://127.0.0.1.attacker.example"):
        assert status(origin=origin) == 403, origin
    assert status(sec_fetch_site="cross-site") == status(sec_fetch_site="same-site") == 403
    assert status(content_type="text/plain") == status(content_type="multipart/form-data; boundary=a") == 415
    assert client.get("/live/probe").status_code == 404
    assert client.options("/live/probe").status_code == 405


def test_nothing_is_answered_without_the_token(client: TestClient):
    for wrong in ("", "Bearer", "Bearer other", f"Basic {TOKEN}", TOKEN):
        answer = client.post("/live/probe", json={**UNIT, "prompt": "a boat"}, headers={"authorization": wrong})
        assert answer.status_code == 403 and "activation" not in answer.text and TOKEN not in answer.text


def test_too_many_bytes_are_not_read(client: TestClient):
    def pieces() -> Iterator[bytes]:
        for _ in range(2 * UPLOAD_BYTES >> 20):
            yield b" " * (1 << 20)

    headers = {"content-type": "application/json"}
    assert client.post("/live/probe", content=b" " * (2 * UPLOAD_BYTES), headers=headers).status_code == 413
    assert client.post("/live/probe", content=pieces(), headers=headers).status_code == 413


def bomb(width: int, height: int) -> bytes:
    """A PNG with a header for so many pixels, and few bytes."""
    data = bytearray(file((16, 16)))
    data[16:24] = width.to_bytes(4) + height.to_bytes(4)
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4)
    return bytes(data)


PICTURES = {
    "nothing like an image": (b"GET / HTTP/1.1", "not an image"),
    "a script": (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "not an image"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    "truncated": (file((96, 96))[:-60], "corrupt"),
    "a bomb": (bomb(30_000, 30_000), "too large"),
    "more pixels than are read": (bomb(6_000, UPLOAD_PIXELS // 6_000 + 1), "at most"),
    "scans without end": (scans(200), "more than 100 scans"),
    "too small": (file((8, 8)), "at least"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_no_usable_picture_is_one_clear_error(client: TestClient, name: str):
    data, expected = PICTURES[name]
    for place in ("probe", "units", "effect"):
        answer = client.post(f"/live/{place}", json={**UNIT, "picture": coded(data)})
        assert answer.status_code == 400 and expected in answer.json()["error"], answer.text


BODIES: dict[str, Any] = {
    "no object": [],
    "no JSON": b"{",
    "nested": b"[" * 200_000,
    "two pictures": {**UNIT, "prompt": "a boat", "image": "0"},
    "none": UNIT,
    "an unknown key": {**UNIT, "prompt": "a boat", "scale": 3},
    "a text as index": {**UNIT, "index": "2", "prompt": "a boat"},
    "a truth as index": {**UNIT, "index": True, "prompt": "a boat"},
    "a huge index": {**UNIT, "index": 10**30, "prompt": "a boat"},
    "a number as prompt": {**UNIT, "prompt": 3},
    "no base64": {**UNIT, "picture": "§"},
    "an unknown layer": {**UNIT, "layer": "layer9", "prompt": "a boat"},
    "a path as layer": {**UNIT, "layer": "../../../../etc/passwd", "prompt": "a boat"},
    "a negative unit": {**UNIT, "index": -1, "prompt": "a boat"},
    "a unit too many": {**UNIT, "index": 10_000, "prompt": "a boat"},
    "a path as image": {**UNIT, "image": "../config.yaml"},
    "a long prompt": {**UNIT, "prompt": "boat " * 1000},
    "a placeholder": {**UNIT, "prompt": "a <object>"},
    "a blank prompt": {**UNIT, "prompt": "  "},
    "a long visitor": {**UNIT, "prompt": "a boat", "visitor": "x" * 1000},
}


@pytest.mark.parametrize("name", BODIES)
def test_other_wrong_requests_are_one_clear_error(client: TestClient, name: str):
    body = BODIES[name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/live/probe", content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json().keys() == {"error"} and len(answer.json()["error"]) < 500


def test_answers_are_kept_by_no_cache(client: TestClient):
    headers = client.post("/live/probe", json={**UNIT, "prompt": "a boat"}).headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_requests_that_are_received_slowly_are_few(living: Run, laboratory: Laboratory):
    app = live_application(living, laboratory)

    async def journey() -> None:
        leaves = asyncio.Event()
        slow = [asyncio.create_task(post(app, "a boat", f"v{n}", leaves, is_whole=False)) for n in range(MAX_WAITING)]
        await asyncio.sleep(0.1)
        status, refused = await post(app, "a boat", "another")
        assert status == 429 and "received" in refused["error"]
        leaves.set()
        await asyncio.gather(*slow, return_exceptions=True)
        assert (await post(app, "a boat", "another"))[0] == 200

    asyncio.run(journey())


# -- one after the other -----------------------------------------------------------------------------------------------


class Waiting:
    """A generator whose images are late."""

    def __init__(self, own: Any):
        self._own, self.begun, self.goes_on = own, threading.Event(), threading.Event()
        self.prompts: list[str] = []

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        self.prompts += [each.prompt for each in requests]
        self.begun.set()
        assert self.goes_on.wait(30)
        return self._own.generate(requests)


class Counting:
    """A target that counts the images that it measures."""

    def __init__(self, own: Any):
        self._own, self.count = own, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def probe(self, probes: Sequence[Probe]) -> Any:
        self.count += len(probes)
        return self._own.probe(probes)

    def respond(self, probes: Sequence[LayerProbe]) -> Any:
        return self._own.respond(probes)


async def post(
    app: Any, prompt: str, visitor: str, leaves: asyncio.Event | None = None, *, is_whole: bool = True
) -> tuple[int, dict[str, Any]]:
    """What the application answers; the client goes when `leaves` is set."""
    body = json.dumps({**UNIT, "prompt": prompt, "visitor": visitor}).encode()
    inbox = [{"type": "http.request", "body": body, "more_body": not is_whole}]
    sent: list[Any] = []

    async def receive() -> Any:
        if inbox:
            return inbox.pop()
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "method": "POST", "path": "/live/probe", "raw_path": b"/live/probe", "query_string": b"",
        "headers": headers, "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "root_path": "",
        "http_version": "1.1",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_requests_wait_for_one_another_and_those_that_left_cost_nothing(living: Run, target: Any):
    config = restore(living.config(), "")
    generator, counted = Waiting(generators.generator(config)), Counting(target)
    app = live_application(living, Laboratory(living, config, counted, generator, ""))

    async def journey() -> None:
        leaves, running_leaves = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(post(app, "a boat", "one", running_leaves))
        assert await asyncio.to_thread(generator.begun.wait, 30)
        waiting = [asyncio.create_task(post(app, f"{n} dogs", f"v{n}", leaves)) for n in range(MAX_WAITING - 2)]
        last = asyncio.create_task(post(app, "a cat", "one"))
        await asyncio.sleep(0.2)  # they are in the queue
        status, refused = await post(app, "a tree", "one")
        assert status == 429 and "of this page" in refused["error"] and MAX_WAITING_EACH == 2
        status, refused = await post(app, "a tree", "another")
        assert status == 429 and "wait" in refused["error"]
        leaves.set()
        assert {status for status, _ in await asyncio.gather(*waiting)} == {499}
        running_leaves.set()
        await asyncio.sleep(0.1)
        generator.goes_on.set()
        assert (await first)[0] == 499 and (await last)[0] == 200
        assert (await post(app, "a boat", "one"))[0] == 200, "all have left the queue"

    asyncio.run(journey())
    assert generator.prompts == ["a boat", "a cat", "a boat"] and counted.count == 2


# -- what is loaded ----------------------------------------------------------------------------------------------------


def changed(living: Run, folder: Path, **sections: dict[str, Any]) -> Run:
    """A run directory with another config."""
    made = folder / "runs/demo"
    made.mkdir(parents=True)
    config = living.config()
    for name, values in sections.items():
        config[name] = values
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    return Run.open(str(made))


def test_it_is_said_in_one_line_what_was_loaded(laboratory: Laboratory):
    assert laboratory.said == f"loaded: the network scenes_resnet ({LAYER}, output) and the generator scenes"


@pytest.mark.parametrize(
    ("generator", "reason"),
    [
        ({"kind": "openai", "model": "gpt-image-1", "size": 512, "base_url": "http://127.0.0.1:1/v1"}, "on a server"),
        ({"kind": "diffusers", "model": "nobody/nothing", "size": 512}, "are not on this machine"),
    ],
)
def test_a_generator_that_is_not_here_is_not_loaded_and_this_is_said(
    living: Run, tmp_path: Path, generator: dict[str, Any], reason: str
):
    found = Laboratory.open(changed(living, tmp_path, generator=generator, editor={"kind": "scenes"}))
    assert not found.draws and reason in found.said and "\n" not in found.said
    with pytest.raises(UsageError, match="cannot be drawn here"):
        found.draw("a boat")
    assert (
        'type="text"'
        not in TestClient(live_application(living, found), base_url="http://127.0.0.1")
        .get("/")
        .text.split('id="live"')[1]
        .split("</details>")[0]
    )


def test_another_network_than_that_of_the_exemplars_is_refused(living: Run, tmp_path: Path):
    other = living.config()["target"] | {"network": "openmaia.offline.networks:scenes_shortcut"}
    with pytest.raises(UsageError, match="other weights"):
        Laboratory.open(changed(living, tmp_path, target=other))


@pytest.mark.slow
def test_pools_that_are_kept_up_answer_what_models_of_this_process_would(
    ray_cluster: None, living: Run, laboratory: Laboratory, image: EncodedImage, tmp_path: Path
):
    run = changed(living, tmp_path, ray=living.config()["ray"] | {"address": "auto"})
    with Laboratory.opened(run) as own:
        assert own.said == f"{laboratory.said}; no pools of this config are kept up on ray.address=auto"
    config, unit = restore(run.config(), run.files.root), UNITS[UNIT["index"]]
    name = kept.up(config, ConfigAssembly())
    try:
        with Laboratory.opened(run) as found:
            assert found.said == laboratory.said.replace("loaded", f"used from the pools {name}")
            assert found.probe(unit, image).response.value == laboratory.probe(unit, image).response.value
            assert found.change(unit, image) == laboratory.change(unit, image) != []
            assert found.draw("a boat")[0].digest == laboratory.draw("a boat")[0].digest
    finally:
        assert kept.down(config)


def test_network_of_one_run_is_loaded(living: Run):
    assert "--live loads the network of one run, and 2 were given" in refused(
        "view", living.files.root, living.files.root, "--live"
    )


# -- pages -------------------------------------------------------------------------------------------------------------


def policy(html: str) -> str:
    (found,) = [
        meta["content"] for meta in Page(html).all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    return found


def test_only_live_pages_may_ask_their_server_and_others_say_how(living: Run, client: TestClient):
    index = write_report([living])
    unit = next(index.parent.rglob("2-0.html"))
    with TestClient(application([living]), base_url="http://127.0.0.1") as plain:
        pages = [index.read_text(), unit.read_text(), plain.get("/").text]
    for html in pages:
        assert html.count("openmaia view RUN --live") == 1
        assert "connect-src" not in policy(html) and "live.js" not in html and 'class="ask"' not in html
    path = unit.relative_to(index.parent).as_posix()
    for html, before in ((client.get("/").text, pages[0]), (client.get(f"/{path}").text, pages[1])):
        assert "view RUN --live" not in html and html.count('class="ask"') == 1
        assert policy(html).replace("connect-src 'self'; ", "") == policy(before)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
def test_dropped_picture_leads_from_the_first_page_to_a_unit_and_its_classes(
    living: Run, image: EncodedImage, tmp_path: Path
):
    source = axe()
    (tmp_path / "dropped.png").write_bytes(image.png)
    command = [sys.executable, "-m", "openmaia.cli", "view", living.files.root, "--live", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            assert lines[1].startswith("live: loaded: the network scenes_resnet")
            address = re.search(r"http://\S+", lines[2])
            assert address is not None
            with browser(tmp_path / "profile") as tab:
                tab.resize(1440)
                tab.open(address[0], "document.body?.dataset.ready === 'texts'")
                tab.run(DROP.format(coded(image.png)))
                tab.wait("document.querySelectorAll('#live .ranked li').length === 10")
                first = tab.run("document.querySelector('#live .ranked .lab').textContent")
                assert "<b>what</b>" in first, "hostile labels are text"
                tab.run("document.querySelector('#live .answer button').click()")
                tab.wait("document.querySelectorAll('#live .why .ranked li').length > 0")
                for scheme, width in itertools.product(("dark", "light"), (390, 1440)):
                    tab.scheme(scheme)
                    tab.resize(width)
                    assert findings(tab, source) == []
                link = f"a[href*='{LAYER}/2-0.html#live-']"
                assert tab.run(f"Boolean(document.querySelector(`#live {link}`))")
                tab.open(tab.run(f"document.querySelector(`#live {link}`).href"))
                tab.wait("document.querySelector('#live .reading')")
                reading = tab.run("document.querySelector('#live .reading').textContent")
                assert re.search(r"stronger than on [\d.]+ % of the dataset", reading)
                assert tab.run("document.querySelector('#live .lit .edge').getAttribute('d').startsWith('M')")
                assert tab.run("document.querySelector('#bars .on').dataset.b") == "27"
                tab.run("document.querySelector('#live .answer button').click()")
                tab.wait("document.querySelector('#live .changes tbody tr')")
                assert findings(tab, source) == []
                tab.run(
                    "document.querySelector('#live [type=text]').value = 'a boat'; document.querySelector('#live button').click()"
                )
                tab.wait("!document.querySelector('#live .changes') && !document.querySelector('.waits')")
                tab.run(DROP.format(coded(b"no picture")))
                tab.wait(
                    "document.querySelector('#live .state.wrong')?.textContent.includes('corrupt') || document.querySelector('#live .state.wrong')?.textContent.includes('not an image')"
                )
        finally:
            process.terminate()


DROP = """(() => {{
  const bytes = Uint8Array.from(atob("{}"), (letter) => letter.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], "dropped.png", {{ type: "image/png" }}));
  document.querySelector("#live").dispatchEvent(new DragEvent("drop", {{ dataTransfer: data, bubbles: true, cancelable: true }}));
}})()"""
