"""Checks whether the servers that a config names answer: those of models, and Ray."""

import importlib
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.importing import has_module
from openmaia.distributed.launchers.requirements import CheckResult, missing, note, ok
from openmaia.models.server_access import ServerAccess

SECONDS = 3.0
"""Seconds within which a server must answer."""

CLASSES = {
    "openai": ("openmaia.models.backbones.openai_server", "OpenAiBackbone"),
    "anthropic": ("openmaia.models.backbones.anthropic_server", "AnthropicBackbone"),
}
"""Module and class of the backbone by backbone.kind."""


def model_servers(config: Config, *, waits: bool = False) -> list[CheckResult]:
    """Checks that the servers of all models that a run uses answer, accept the user's API key and serve the model.

    Returns no result for a model that is not on a server.

    Args:
        config: The config.
        waits: Whether a server that is slow or overloaded, or that does not list its models, is a note and not missing.
    """
    asked: list[tuple[Any, Callable[[], ServerAccess]]] = []
    chatting = {"backbone": config.backbone, "evaluate.writer": config.evaluate.writer}
    if config.backbone.sees == "text":
        chatting["viewer"] = config.viewer
    for section, settings in chatting.items():
        if settings.kind in CLASSES and has_module(settings.kind):  # A missing package is named by missing_packages.
            module, name = CLASSES[settings.kind]
            backbone: Any = getattr(importlib.import_module(module), name)
            make = partial(backbone, settings, section)
            asked.append((backbone.sdk, lambda make=make: make().access))
    drawing = {"generator": config.generator, "editor": config.editor, "evaluate.generator": config.evaluate.generator}
    for section, service in drawing.items():
        if service.kind == "openai":
            import openai

            from openmaia.models.generators.images_api import ImagesApi

            api = service.api
            asked.append((openai, lambda api=api, section=section: ImagesApi(api, section).access))
    with ThreadPoolExecutor(max(len(asked), 1)) as threads:
        return list(threads.map(lambda each: _asked(*each, waits=waits), asked))


def _asked(vendor: Any, access: Callable[[], ServerAccess], *, waits: bool) -> CheckResult:
    """Asks a server for the models that it serves, and checks that the configured model is one of them.

    Args:
        vendor: The client library, the module `openai` or `anthropic`.
        access: Returns how to reach the server. Raises UsageError if the key is missing or the address is not a URL.
        waits: See `model_servers`.
    """
    try:
        server = access()
    except UsageError as error:
        return missing(error.message)
    given = f"{server.section}.base_url={server.url}"
    try:
        client = vendor.Client(api_key=server.key(), base_url=server.url, timeout=SECONDS, max_retries=0)
        names = [model.id for model in client.models.list().data]
    except (
        vendor.APITimeoutError,
        vendor.PermissionDeniedError,
        vendor.RateLimitError,
        vendor.InternalServerError,
    ) as error:
        if waits:
            return note(f"{given} does not list its models now ({type(error).__name__})")
        if not isinstance(error, vendor.PermissionDeniedError):
            return _no_answer(given, server, error)
        return missing(f"{given} refuses the key; set {server.key_variable} to a valid one")
    except vendor.AuthenticationError:
        return missing(f"{given} refuses the key; set {server.key_variable} to a valid one")
    except vendor.NotFoundError:
        return note(f"{given} answers, but lists no models; {server.address_hint}")
    except vendor.APIError as error:
        return _no_answer(given, server, error)
    except (AttributeError, TypeError, ValueError):
        return missing(f"{given} answers, but not as this API; {server.address_hint}")
    if server.model in names:
        return ok(f"{given} serves {server.model}")
    return note(
        f"{given} does not list {server.section}.model={server.model}, but {', '.join(names[:5]) or 'no model'}"
    )


def _no_answer(given: str, server: ServerAccess, error: Exception) -> CheckResult:
    reason = server.shown(str(error.__cause__ or error))  # Servers may repeat the key.
    return missing(f"{given} does not answer ({reason}); start the server, or see its log")


def ray_cluster(address: str) -> list[CheckResult]:
    """Checks that a Ray cluster accepts connections.

    Args:
        address: The address of the cluster.

    Returns:
        A list with the result of the check. It is empty if nothing was checked, because the address is not a host with
        a port, but for example "auto".
    """
    named = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    if not named:
        return []
    try:
        socket.create_connection((named[1], int(named[2])), timeout=SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        return [missing(f"ray.address={address} does not answer ({reason}); ray start --head, or another address")]
    return [ok(f"ray.address={address} answers; the run compares its nodes with the pools before it loads weights")]
