"""Checks whether the servers that a config names answer: the backbone's, and Ray."""

import importlib
import os
import re
import socket
from typing import Any

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.distributed.launchers.requirements import CheckResult, missing, note, ok

SECONDS = 3.0
"""Seconds within which a server must answer."""

CLASSES = {
    "openai": ("openmaia.models.backbones.openai_server", "OpenAiBackbone"),
    "anthropic": ("openmaia.models.backbones.anthropic_server", "AnthropicBackbone"),
}
"""Module and class of the backbone by backbone.kind."""


def model_server(config: Config) -> list[CheckResult]:
    """Asks the backbone's server which models it serves, with its vendor's client and the user's key.

    Returns no result if the backbone is not a server.
    """
    settings = config.backbone
    if settings.kind not in CLASSES:
        return []
    module, name = CLASSES[settings.kind]
    backbone: Any = getattr(importlib.import_module(module), name)
    vendor = backbone.sdk
    url = settings.base_url or backbone.address
    given = f"backbone.base_url={url}"
    try:
        endpoint = backbone(settings)  # Refuses a missing key, an empty model, and an address that is no URL.
    except UsageError as error:
        return [missing(error.message)]
    try:
        key = os.environ.get(backbone.key_variable, "").strip() or "none"
        listed = vendor.Client(api_key=key, base_url=url, timeout=SECONDS, max_retries=0).models.list()
        names = [model.id for model in listed.data]
    except (vendor.AuthenticationError, vendor.PermissionDeniedError):
        return [missing(f"{given} refuses the key; set {backbone.key_variable} to a valid one")]
    except vendor.NotFoundError:
        return [note(f"{given} answers, but lists no models; {backbone.address_hint}")]
    except vendor.APIError as error:
        reason = endpoint.shown(str(error.__cause__ or error))  # Servers may repeat the key.
        return [missing(f"{given} does not answer ({reason}); start the server, or see its log")]
    except (AttributeError, TypeError, ValueError):
        return [missing(f"{given} answers, but not as this API; {backbone.address_hint}")]
    if settings.model in names:
        return [ok(f"{given} serves {settings.model}")]
    return [note(f"{given} does not list backbone.model={settings.model}, but {', '.join(names[:5]) or 'no model'}")]


def ray_cluster(address: str) -> list[CheckResult]:
    """Checks that a Ray cluster accepts connections. Returns no result if `address` is not a host and port."""
    named = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    if not named:
        return []
    try:
        socket.create_connection((named[1], int(named[2])), timeout=SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        return [missing(f"ray.address={address} does not answer ({reason}); ray start --head, or another address")]
    return [ok(f"ray.address={address} answers; the run compares its nodes with the pools before it loads weights")]
