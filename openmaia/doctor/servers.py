"""Backbones behind a server: is there a key, and does somebody answer at the address?"""

import json
import os
from http.client import HTTPException
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from openmaia.doctor.finding import Finding, missing, note, ok
from openmaia.schema import BackboneConfig, Config

SECONDS = 3.0
MOST = 1 << 20
"""Bytes of an answer that are read."""

LISTS = {"openai": "/models", "anthropic": "/v1/models"}
"""Where a server lists its models, below base_url. No key is sent: a refusal is an answer too."""


def findings(config: Config) -> list[Finding]:
    backbone = config.backbone
    if backbone.kind not in LISTS or find_spec(backbone.kind) is None:
        return []
    variable, address, elsewhere = _kind(backbone.kind)
    return [_key(backbone, variable), _address(backbone, backbone.base_url or address, elsewhere)]


def _kind(kind: str) -> tuple[str, str, str]:
    """(variable of the key, the maker's own server, what is usually wrong with another address)"""
    if kind == "openai":
        from openmaia.backbones.openai_server import OpenAiBackbone as Server
    else:
        from openmaia.backbones.anthropic_server import AnthropicBackbone as Server
    return Server.key_variable, Server.address, Server.elsewhere


def _key(backbone: BackboneConfig, variable: str) -> Finding:
    if os.environ.get(variable, "").strip():
        return ok(f"{variable} is set")
    if backbone.base_url:
        return note(f"{variable} is not set, which a server of one's own may do without")
    return missing(f"backbone.kind={backbone.kind} needs a key, and {variable} is not set", f"export {variable}=…")


def _address(backbone: BackboneConfig, url: str, elsewhere: str) -> Finding:
    given = f"backbone.base_url={url}"
    try:
        request = Request(url.rstrip("/") + LISTS[backbone.kind], headers={"Accept": "application/json"})
        with urlopen(request, timeout=SECONDS) as answer:
            status, kind, body = answer.status, answer.headers.get_content_type(), answer.read(MOST)
    except HTTPError as error:
        status, kind, body = error.code, error.headers.get_content_type(), b""
        error.close()
    except ValueError as error:
        return missing(f"{given} is no address: {error}", "backbone.base_url=http://… or https://…")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return missing(f"{given} does not answer: {reason}", "start the server, or backbone.base_url=…")
    if kind == "text/html":
        return missing(f"{given} answers with a web page", f"backbone.base_url=…: {elsewhere}")
    if status in (404, 405):
        return note(f"{given} answers, but lists no models ({status})", elsewhere)
    if status >= 500:
        return missing(f"{given} answers with {status}", "look into the server's log")
    return _served(backbone, given, body) if status == 200 else ok(f"{given} answers ({status}: it wants a key)")


def _served(backbone: BackboneConfig, given: str, body: bytes) -> Finding:
    try:
        listed: Any = json.loads(body)["data"]
        names = [str(each["id"]) for each in listed]
    except (ValueError, KeyError, TypeError):
        return note(f"{given} answers, but its list of models cannot be read")
    if backbone.model in names:
        return ok(f"{given} answers and serves {backbone.model}")
    shown = ", ".join(names[:5]) or "no model"
    return note(f"{given} answers, but does not list backbone.model={backbone.model}", f"it serves {shown}")
