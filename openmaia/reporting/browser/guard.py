"""Refuses requests that pages of other sites send to the server of `openmaia view`, and such as are too large."""

import json
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from openmaia.core.documents import parse_json

JSON = "application/json"


class RequestRefused(Exception):
    """Why a request is not answered, with the status of HTTP."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def check_origin(request: Request) -> None:
    """Raises RequestRefused for a request that a browser sends for a page of another origin.

    Host and token have been checked (`openmaia.reporting.browser.access`). A program names no origin. The type of the
    content is one for which a browser first asks the server, if the page is of another origin.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    if not _is_own(origin, request.headers.get("host", "")) or site != "same-origin":
        raise RequestRefused(403, "only the pages of this server may ask")
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise RequestRefused(415, f"expected {JSON}")


def _is_own(origin: str | None, host: str) -> bool:
    try:
        return origin is None or urlsplit(origin).netloc == host
    except ValueError:  # such as http://[
        return False


async def read_json(request: Request, largest: int, expected: str) -> Any:
    """Returns the JSON value in the body of a request. Raises RequestRefused, which says what is `expected`, if it is none, and
    for texts that are no Unicode."""
    try:
        value: Any = parse_json(await read_body(request, largest))
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair has no encoding
    except ValueError as error:
        raise RequestRefused(400, expected) from error
    return value


async def read_body(request: Request, largest: int) -> bytes:
    """Returns the body of a request. Raises RequestRefused if it has more than `largest` bytes, of which no more are read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > largest:
            raise RequestRefused(413, f"expected at most {largest:,} bytes")
    return bytes(body)
