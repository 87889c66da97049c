"""The requests of a page to the network behind `openmaia view RUN --live`: POST /live/probe, /live/units and /live/effect.

Threat model. Who knows the token may ask, and only ask: nothing is written, and no file is read by a name that a request gives.
Pages of other sites, also such as reach the server under another name (DNS rebinding) or on another port of the same machine, may
not: the name of the host, the origin and the type of the content are checked beside the token. A picture may be any bytes.
"""

import asyncio
import base64
import binascii
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from openmaia.analysis.responding import PictureResponse
from openmaia.core.errors import OpenMaiaError, ToolError, UsageError
from openmaia.core.images import EncodedImage, seen_part
from openmaia.core.services import find_levels
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.models.text_embedding import TextEmbedding
from openmaia.reporting.browser.guard import RequestRefused, check_origin, read_json
from openmaia.reporting.browser.pages import LiveBox
from openmaia.reporting.browser.serve import HEADERS, application
from openmaia.reporting.browser.unit.pictures import DATA_URI_PREFIX, trace_frame, trace_map
from openmaia.runs.run import Run
from openmaia.serving.laboratory import SCALES, Laboratory, LiveActivation

_AnswerT = TypeVar("_AnswerT")

UPLOAD_BYTES = 16 << 20
"""Of a picture."""
_MAX_BODY = UPLOAD_BYTES * 4 // 3 + 10_000
MAX_WAITING = 16
"""Requests that are answered or wait, and as many that are received."""
RECEIVING_SECONDS = 60
"""Within which a request has to be received."""
MAX_WAITING_EACH = 2
"""… of one visitor: the one that is answered, and the next."""
_LISTED = 30
"""Units in an answer."""
_MAX_NAME = 64
"""Characters by which a page names itself."""


class _ClientGone(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """The JSON object that a page sends. It gives one of picture, prompt and image."""

    visitor: str = ""
    """A name that the page has made up, by which its requests are counted."""
    layer: str = ""
    index: int = 0
    picture: str = ""
    """The bytes of an image file as base64."""
    prompt: str = ""
    image: str = ""
    """The digest of an image in an earlier answer."""


LiveWork = Callable[[LiveRequest, Callable[[], None]], dict[str, Any]]
"""Answers a request. The function that it gets raises an exception if nobody waits any more; it is called between steps that
cost something."""


def live_application(
    run: Run,
    laboratory: Laboratory,
    embed: TextEmbedding | None = None,
    token: str = "",
    *,
    allows: Collection[str] = (),
) -> Starlette:
    """Returns the ASGI application that serves the report of a run, with boxes for pictures and prompts. See `application`."""
    box = LiveBox(said=laboratory.said, draws=laboratory.draws, layers=frozenset(laboratory.effects.layers))
    return application([run], embed, token, live=box, routes=_routes(laboratory), allows=allows)


def _routes(laboratory: Laboratory) -> list[Route]:
    turns = _Turns()
    works = {"probe": _Probing, "units": _Ranking, "effect": _Changing, "why": _Reasoning}

    def route(name: str, work: LiveWork) -> Route:
        async def answer(request: Request) -> JSONResponse:
            try:
                check_origin(request)
                with turns.reading():
                    async with asyncio.timeout(RECEIVING_SECONDS):
                        asked = await _read(request)
                return JSONResponse(await turns.take(request, asked, work), 200, HEADERS)
            except RequestRefused as error:
                return _failed(error.status, str(error))
            except TimeoutError:
                return _failed(408, f"the question was not received within {RECEIVING_SECONDS} s")
            except (_ClientGone, ClientDisconnect):
                return _failed(499, "nobody waits for this answer")
            except (UsageError, ToolError) as error:
                return _failed(400, error.message)
            except OpenMaiaError as error:
                return _failed(502, error.message)

        return Route(f"/live/{name}", answer, methods=["POST"])

    return [route(name, work(laboratory)) for name, work in works.items()]


def _failed(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, HEADERS)


# -- requests ------------------------------------------------------------------------------------------------------------


async def _read(request: Request) -> LiveRequest:
    found = await read_json(request, _MAX_BODY, "expected a JSON object")
    kinds = {name: int if name == "index" else str for name in LiveRequest.__dataclass_fields__}
    given: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {"": ""}
    if any(name not in kinds or find_mistyped(value, kinds[name]) is not None for name, value in given.items()):
        raise RequestRefused(
            400, f"expected a JSON object with {', '.join(kinds)}; index is a number, all others are texts"
        )
    asked = LiveRequest(**given)
    if sum(map(bool, (asked.picture, asked.prompt, asked.image))) != 1:
        raise RequestRefused(400, "give one of picture, prompt and image")
    if len(asked.visitor) > _MAX_NAME:
        raise RequestRefused(400, f"visitor has more than {_MAX_NAME} characters")
    return asked


class _Turns:
    """One thread in which requests are answered one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()
        self._read = 0

    @contextmanager
    def reading(self) -> Generator[None]:
        """Context manager while a request is received, which may be large and slow."""
        if self._read >= MAX_WAITING:
            raise RequestRefused(429, f"{MAX_WAITING} questions are being received; try again later")
        self._read += 1
        try:
            yield
        finally:
            self._read -= 1

    async def take(self, request: Request, asked: LiveRequest, work: LiveWork) -> dict[str, Any]:
        """Answers a request, unless its client leaves before its turn."""
        self._enter(asked.visitor)
        gone = threading.Event()

        def check() -> None:
            if gone.is_set():
                raise _ClientGone

        future = self._thread.submit(work, asked, check)
        future.add_done_callback(lambda _: self._leave(asked.visitor))
        return await _unless_gone(request, future, gone)

    def _enter(self, visitor: str) -> None:
        with self._lock:
            if self._waiting[visitor] >= MAX_WAITING_EACH:
                raise RequestRefused(429, "an earlier question of this page still waits; try again when it is answered")
            if self._waiting.total() >= MAX_WAITING:
                raise RequestRefused(429, f"{MAX_WAITING} questions wait; try again later")
            self._waiting[visitor] += 1

    def _leave(self, visitor: str) -> None:
        with self._lock:
            self._waiting[visitor] -= 1
            if not self._waiting[visitor]:
                del self._waiting[visitor]


async def _unless_gone(request: Request, future: Future[_AnswerT], gone: threading.Event) -> _AnswerT:
    answered, left = asyncio.wrap_future(future), asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait({answered, left}, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            gone.set()
            future.cancel()
        return await answered
    except asyncio.CancelledError:
        if not gone.is_set():  # the server ends
            raise
        raise _ClientGone from None
    finally:
        left.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# -- answers -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    laboratory: Laboratory

    def _image(self, asked: LiveRequest, check: Callable[[], None]) -> tuple[EncodedImage, dict[str, Any]]:
        """Returns the image that a request gives, and what is said of it."""
        check()
        missing: Sequence[str] = ()
        if asked.prompt:
            image, missing = self.laboratory.draw(asked.prompt)
        elif asked.image:
            image = self.laboratory.recall(asked.image)
        else:
            image = self.laboratory.read(_decoded(asked.picture))
        check()
        shown = DATA_URI_PREFIX + base64.b64encode(image.webp()).decode()
        return image, {"image": image.digest, "shown": shown, "missing": list(missing)}

    def _unit(self, asked: LiveRequest) -> Unit:
        return self.laboratory.unit(asked.layer, asked.index)


class _Probing(_Work):
    """Measures one unit."""

    def __call__(self, asked: LiveRequest, check: Callable[[], None]) -> dict[str, Any]:
        unit = self._unit(asked)
        image, said = self._image(asked, check)
        measured = self.laboratory.probe(unit, image)
        return said | {
            "activation": measured.response.value,
            "logit": measured.response.raw,
            "percent": measured.percent,
            "level": _level(measured),
            **_part(measured, image),
        }


class _Ranking(_Work):
    """Names the units of the run that respond most."""

    def __call__(self, asked: LiveRequest, check: Callable[[], None]) -> dict[str, Any]:
        image, said = self._image(asked, check)
        ranked = self.laboratory.rank(image)
        listed = [_listed(one) for one in ranked[:_LISTED]]
        return said | {"units": listed, "ranked": len(ranked), "count": self.laboratory.count}


class _Reasoning(_Work):
    """Names the units of the run that matter for the predicted class."""

    def __call__(self, asked: LiveRequest, check: Callable[[], None]) -> dict[str, Any]:
        image, said = self._image(asked, check)
        reasons = self.laboratory.why(image)
        return said | {
            "predicted": reasons.predicted,
            "probability": reasons.probability,
            "ablated": reasons.ablated,
            "unchangeable": list(reasons.unchangeable),
            "units": [_listed(one.response) | {"effect": one.effect} for one in reasons.units[:_LISTED]],
        }


class _Changing(_Work):
    """Says what a unit does to the classes."""

    def __call__(self, asked: LiveRequest, check: Callable[[], None]) -> dict[str, Any]:
        unit = self._unit(asked)
        image, said = self._image(asked, check)
        changed = self.laboratory.change(unit, image)
        classes = [{"name": one.name, "probabilities": one.probabilities} for one in changed]
        return said | {"scales": SCALES, "classes": classes}


def _listed(one: PictureResponse) -> dict[str, Any]:
    return {
        "layer": one.unit.layer,
        "index": one.unit.index,
        "activation": one.activation,
        "percent": one.percent,
        "z": one.z,
    }


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError("picture is no base64") from error


def _level(measured: LiveActivation) -> int | None:
    """The number of the activation's bar in the histogram of the page; None where there is none."""
    known = measured.statistics
    if known is None or known.maxima is None or known.counts is None or known.state != "ok":
        return None
    ends = float(known.maxima[0]), float(known.maxima[-1])
    return int(find_levels(np.array([measured.response.value]), *ends)[0])


def _part(measured: LiveActivation, image: EncodedImage) -> Mapping[str, str | bool]:
    """The outline of the part that excites the unit, and of the part that the network sees, as SVG paths, and whether the
    former is known."""
    response, size = measured.response, image.size
    outline, is_placed = "", False
    if response.map is not None and measured.statistics is not None:
        outline, is_placed = trace_map(response.map, response.box, size, measured.statistics.threshold), True
    return {"outline": outline, "placed": is_placed, "frame": trace_frame(seen_part(size, response.box), size)}
