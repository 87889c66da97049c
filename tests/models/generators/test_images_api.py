"""Generator and editor of an images API, through the real client over real sockets, against a server that draws."""

import base64
import hashlib
import io
import json
import logging
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openmaia.assembly import generators
from openmaia.config.loading import load
from openmaia.core.errors import ServiceError, ServiceUnavailable, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, Generation
from openmaia.models.generators.images_api import REFUSED, ApiConfig, ApiEditor, ApiGenerator
from openmaia.models.generators.images_client import ImagesApi
from openmaia.reporting.image_models import image_model
from tests.helpers.http import QuietHandler, serving

KEY = "sk-images/secret-0123456789abcdef"
CONFIG = Path(__file__).parents[3] / "configs/models/images-api.yaml"


def drawn(text: str, size: tuple[int, int]) -> Image.Image:
    """A plain picture whose colour is a hash of a text."""
    return Image.new("RGB", size, tuple(hashlib.sha256(text.encode()).digest()[:3]))


class Drawing(QuietHandler):
    """Answers as an images API. An edit darkens the upper half of its image. `failures` come first, one per request."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]
    failures: deque[tuple[int, dict[str, Any]]]
    keys: list[str]
    unknown: set[str]
    lock: threading.Lock

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        body = _form(self.headers["content-type"], data) if self.path.endswith("/edits") else json.loads(data)
        with self.lock:
            self.asked.append(body | {"path": self.path})
            self.keys.append(self.headers["authorization"])
            failure = self.failures.popleft() if self.failures else None
        if failure is None and (named := self.unknown & body.keys()):
            failure = 400, {"error": {"message": f"Unknown parameter: '{min(named)}'.", "param": min(named)}}
        status, answer = failure or (200, {"created": 1, "data": [{"b64_json": self._image(body)}]})
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _image(self, body: dict[str, Any]) -> str:
        width, height = map(int, body["size"].split("x"))
        image = drawn(f"{body['prompt']} {body.get('seed', len(self.asked))}", (width, height))
        if "image" in body:
            pixels = np.asarray(Image.open(io.BytesIO(body["image"]))).copy()
            assert pixels.shape[:2] == (height, width)
            pixels[: height // 2] //= 2
            image = Image.fromarray(pixels)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return base64.b64encode(buffer.getvalue()).decode()


def _form(kind: str, data: bytes) -> dict[str, Any]:
    parts: Any = message_from_bytes(f"content-type: {kind}\r\n\r\n".encode() + data).get_payload()
    return {_name(part): _content(part) for part in parts}


def _name(part: Message) -> str:
    return str(part.get_param("name", header="content-disposition"))


def _content(part: Message) -> Any:
    content: Any = part.get_payload(decode=True)
    return content if _name(part) == "image" else content.decode().strip()


Server = type[Drawing]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, str]]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    class Handler(Drawing):
        asked, failures, keys, unknown, lock = [], deque(), [], set(), threading.Lock()

    with serving(Handler) as address:
        yield Handler, f"{address}/v1"


def config(address: str, **settings: Any) -> ApiConfig:
    given = {
        "model": "painter",
        "base_url": address,
        "size": 32,
        "request_size": "64x64",
        "tries": 2,
        "timeout": 20.0,
        **settings,
    }
    return ApiConfig(**given)


def prompts(*texts: str) -> list[Generation]:
    return [Generation(prompt=text, seed=2**40 + number) for number, text in enumerate(texts)]


def colour(image: EncodedImage) -> tuple[int, ...]:
    [(_, value)] = image.pil().getcolors() or [(0, 0)]
    return tuple(value)  # pyright: ignore[reportArgumentType]


def test_images_have_the_prompts_the_size_and_the_order_of_the_requests(server: tuple[Server, str]):
    handler, address = server
    generator = ApiGenerator(config(address, seed=True, quality="low", arguments={"style": "natural"}))
    images = generator.generate(prompts("a red ball", "a blue ball", "grass"))
    seeds = [(2**40 + number) % 2**31 for number in range(3)]
    texts = ("a red ball", "a blue ball", "grass")
    expected = [drawn(f"{text} {seed}", (1, 1)).getpixel((0, 0)) for text, seed in zip(texts, seeds, strict=True)]
    assert [colour(each.image) for each in images] == expected
    assert all(each.image.pixels.shape == (32, 32, 3) and not each.missing_terms for each in images)
    assert sorted(asked["seed"] for asked in handler.asked) == seeds
    asked = {name: handler.asked[0][name] for name in ("model", "size", "quality", "style", "n", "response_format")}
    assert asked == {
        "model": "painter", "size": "64x64", "quality": "low", "style": "natural", "n": 1, "response_format": "b64_json",
    }  # fmt: skip
    assert set(handler.keys) == {f"Bearer {KEY}"}


def test_no_seed_is_sent_unless_the_server_takes_one(server: tuple[Server, str]):
    handler, address = server
    generator = ApiGenerator(config(address))
    first, second = (colour(generator.generate(prompts("a cat"))[0].image) for _ in range(2))
    assert "seed" not in handler.asked[0] and first != second


def test_a_wide_image_is_cropped_to_a_square(server: tuple[Server, str]):
    _, address = server
    [made] = ApiGenerator(config(address, request_size="96x64")).generate(prompts("a road"))
    assert made.image.pixels.shape == (32, 32, 3)


@pytest.mark.parametrize("shape", [(40, 40), (30, 60), (100, 50)])
def test_an_edit_changes_the_original_and_keeps_its_size(server: tuple[Server, str], shape: tuple[int, int]):
    handler, address = server
    pixels = np.zeros((*shape, 3), np.uint8)
    pixels[:, :] = (200, 100, 50)
    original = EncodedImage.of(pixels, ["source"])
    [edited] = ApiEditor(config(address)).edit([Edit(image=original, instruction="darken the sky", seed=1)])
    assert edited.image.pixels.shape == pixels.shape and edited.image.sources == ("source",)
    top, bottom = edited.image.pixels[2, shape[1] // 2], edited.image.pixels[-3, shape[1] // 2]
    assert np.abs(top.astype(int) - (100, 50, 25)).max() <= 3 and np.abs(bottom.astype(int) - (200, 100, 50)).max() <= 3
    assert handler.asked[0]["path"] == "/v1/images/edits" and handler.asked[0]["prompt"] == "darken the sky"


@pytest.mark.parametrize("name", ["response_format", "quality"])
def test_refused_parameters_are_omitted_from_then_on(server: tuple[Server, str], name: str):
    handler, address = server
    handler.unknown.add(name)
    generator = ApiGenerator(config(address, quality="low", concurrency=1))
    assert len(generator.generate(prompts("a", "b"))) == 2
    assert [name in asked for asked in handler.asked] == [True, False, False]


def test_a_refused_seed_is_a_mistake_of_the_config(server: tuple[Server, str]):
    handler, address = server
    handler.unknown.add("seed")
    with pytest.raises(UsageError, match=r"takes no seed .*set generator.seed=false"):
        ApiGenerator(config(address, seed=True)).generate(prompts("a"))


def test_a_refused_prompt_is_grey_and_said_to_be_missing(server: tuple[Server, str]):
    handler, address = server
    handler.failures.append(
        (400, {"error": {"message": "Blocked by our safety system.", "code": "moderation_blocked"}})
    )
    generator = ApiGenerator(config(address, concurrency=1))
    refused, drawn_one = generator.generate(prompts("something bad", "a cat"))
    assert refused.missing_terms == (REFUSED,) and colour(refused.image) == (128, 128, 128)
    assert not drawn_one.missing_terms
    original = EncodedImage.of(np.full((8, 8, 3), 7, np.uint8))
    handler.failures.append((400, {"error": {"message": "Your request was rejected: content_policy_violation"}}))
    [edited] = ApiEditor(config(address)).edit([Edit(image=original, instruction="bad", seed=1)])
    assert edited.missing_terms == (REFUSED,) and edited.image.digest == original.digest


def test_a_busy_server_is_asked_again(server: tuple[Server, str]):
    handler, address = server
    handler.failures.append((429, {"error": {"message": "slow down"}}))
    ApiGenerator(config(address)).generate(prompts("a"))
    assert len(handler.asked) == 2
    handler.failures.extend([(503, {"error": {"message": "overloaded"}})] * 2)
    with pytest.raises(ServiceUnavailable, match=r"503: overloaded \(tries: 2"):
        ApiGenerator(config(address)).generate(prompts("b"))


def test_a_rate_limit_stops_all_requests_until_it_is_over(server: tuple[Server, str]):
    handler, address = server
    handler.failures.extend([(429, {"error": {"message": "Please try again in 2m0s."}})])
    generator = ApiGenerator(config(address, tries=6, concurrency=1))
    for _ in range(3):
        with pytest.raises(ServiceUnavailable, match="429"):
            generator.generate(prompts("a"))
    assert len(handler.asked) == 1


def test_a_moderation_of_a_proxy_is_a_refused_prompt(server: tuple[Server, str]):
    handler, address = server
    handler.failures.append((403, {"error": {"message": "Your input was flagged for violence."}}))
    assert ApiGenerator(config(address)).generate(prompts("a"))[0].missing_terms == (REFUSED,)


def test_an_unknown_refusal_names_the_key(server: tuple[Server, str]):
    handler, address = server
    handler.failures.append((400, {"error": {"message": "size must be one of 1024x1024"}}))
    with pytest.raises(ServiceError, match=r"generator\.request_size"):
        ApiGenerator(config(address)).generate(prompts("a"))


@pytest.mark.parametrize(
    ("status", "body", "kind", "named"),
    [
        (401, {"error": {"message": f"bad key {KEY}"}}, UsageError, "OPENAI_API_KEY"),
        (404, {"error": {"message": "no such model"}}, UsageError, "generator.model='painter'"),
        (400, {"error": {"message": "size must be one of 1024x1024"}}, ServiceError, "size must be"),
        (200, {"data": [{"url": "http://127.0.0.1/x.png"}]}, UsageError, "not as this API"),
        (200, {"data": [{"b64_json": base64.b64encode(b"no image").decode()}]}, ServiceError, "cannot be read"),
    ],
)
def test_failures_name_the_cause_and_never_the_key(
    server: tuple[Server, str],
    caplog: pytest.LogCaptureFixture,
    status: int,
    body: dict[str, Any],
    kind: type[Exception],
    named: str,
):
    handler, address = server
    handler.failures.append((status, body))
    caplog.set_level(logging.DEBUG)
    with pytest.raises(kind) as caught:
        ApiGenerator(config(address, tries=1)).generate(prompts("a"))
    assert named in str(caught.value) and len(handler.asked) == 1
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r} {caplog.text}"


def test_an_absent_server_is_named(server: tuple[Server, str]):
    with pytest.raises(ServiceUnavailable, match=r"generator.base_url=http://127.0.0.1:9/v1: cannot be reached"):
        ApiGenerator(config("http://127.0.0.1:9/v1", tries=1)).generate(prompts("a"))


def test_the_key_is_not_pickled(server: tuple[Server, str]):
    _, address = server
    api = ImagesApi(config(address), "generator")
    assert api.draw("a", 1) is not None
    travelled = pickle.dumps(api)
    assert KEY.encode() not in travelled and pickle.loads(travelled).draw("a", 1) is not None


def test_the_shipped_config_makes_both_services(server: tuple[Server, str]):
    handler, address = server
    overrides = [f"{role}.base_url={address}" for role in ("generator", "editor")]
    given = load([str(CONFIG), "name=x", "units=all", "target.name=t", "target.kind=closed_form", *overrides])
    [made] = generators.generator(given).generate(prompts("a cat"))
    generators.build_section(given, "editor").edit([Edit(image=made.image, instruction="add a hat", seed=1)])
    assert [asked["path"] for asked in handler.asked] == ["/v1/images/generations", "/v1/images/edits"]
    assert made.image.pixels.shape == (512, 512, 3)


def test_images_without_seeds_are_named_as_not_reproducible():
    section = {"kind": "openai", "model": "gpt-image-1", "seed": False}
    assert image_model(section, "generator") == "gpt-image-1 (without seeds, not reproducible)"
    assert image_model({"kind": "openai", "model": "own", "seed": True}, "generator") == "own"
    assert image_model({"kind": "diffusers", "model": "hub/FLUX.1-dev"}, "generator") == "FLUX.1-dev"
    assert image_model({"kind": "nobody:Knows", "model": "own"}, "generator") == "own"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("generator.model=''", "generator.kind=openai needs generator.model"),
        ("editor.request_size=large", "editor.request_size='large'; expected width and height"),
        ("pools.generator.min_replicas=2", "raise generator.concurrency"),
    ],
)
def test_the_config_is_checked(override: str, named: str):
    with pytest.raises(UsageError, match=named):
        load([str(CONFIG), "name=x", "units=all", "target.name=t", "target.kind=closed_form", override])
