"""The prices of models on servers: what the config says, or else a table by server and model.

A complete config holds the prices of its models, so that every process of a run, on any machine, counts with the same.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, pools_by_role
from openmaia.config.sections import find_components
from openmaia.core.components import Component, ComponentConfig
from openmaia.core.documents import parse_yaml
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.shipped import shipped
from openmaia.core.typed import find_mistyped

TABLE = "prices.yaml"
"""The table of this package, among the configs."""

JUDGE = "judge"
"""The service that decides what images show, if it is a model of its own."""

_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")
_TOKENS = {f"{kind}_price": kind for kind in ("input", "cached", "written", "output")}

_Prices = dict[str, float]


def fill_prices(config: Config) -> None:
    """Sets the prices that a complete config leaves out and that are known.

    Raises:
        UsageError: `prices.file` cannot be read, a price is negative, or there is a budget and the price of a model is
            not known.
    """
    unknown: list[str] = []
    for component, settings, place in find_components(config):
        if not component.price_keys:
            continue
        _fill(component, settings, config.prices.file)
        for key in (*component.price_keys, *_TOKENS):
            price = getattr(settings, key, None)
            if price is not None and not 0 <= price < float("inf"):
                raise UsageError(f"{place.key}.{key}={price} is out of range; give a price in US dollars of 0 or more")
        unknown += [f"{place.key}.{key}" for key in component.price_keys if getattr(settings, key) is None]
    config.prices.file = ""  # its prices stand in the config, and other machines and folders lack it
    if unknown and (config.budget or config.limits.budget):
        given = f"budget={config.budget:g}" if config.budget else f"limits.budget={config.limits.budget:g}"
        raise UsageError(
            f"{given} needs the prices of all models on servers, and {', '.join(unknown)} "
            f"{'is' if len(unknown) == 1 else 'are'} not known; set {'it' if len(unknown) == 1 else 'them'} in US dollars "
            "(0 for a server of yours), or name a table of prices with prices.file"
        )


def paid_services(config: Config) -> frozenset[str]:
    """Returns the services of investigations and tests that cost something, or whose price is not known."""
    found: set[str] = set()
    for component, settings, place in find_components(config):
        prices = [getattr(settings, key) for key in component.price_keys]
        if any(price != 0 for price in prices) or (config.prices.gpu_hour and place.gpus):
            found.add(place.pool or JUDGE)
    served = {role for role, pool in pools_by_role(config).items() if pool in found}
    if TEST_GENERATOR in served:  # its calls are charged to the generator
        served.add("generator")
    return frozenset(served - {TEST_GENERATOR} | found & {JUDGE})


def _fill(component: type[Component], settings: ComponentConfig, file: str) -> None:
    host = urlsplit(getattr(settings, "base_url", "") or component.address).hostname or ""
    found: _Prices = {}
    for table in (_read(str(shipped("configs") / TABLE)), *([_read(str(user_path(file)))] if file else [])):
        found |= dict(_prices(table.get(host, {}), settings))
    for key, price in found.items():
        if hasattr(settings, key) and getattr(settings, key) is None:
            setattr(settings, key, price)


def _prices(server: dict[str, Any], settings: Any) -> Iterator[tuple[str, float]]:
    """Yields (config key, price) of a model, from what a table says of its server."""
    names = (settings.model, _DATE.sub("", settings.model))
    none: _Prices = {}
    tokens: _Prices = next((server["tokens"][name] for name in names if name in server.get("tokens", {})), none)
    yield from ((key, tokens[kind]) for key, kind in _TOKENS.items() if kind in tokens)
    images: _Prices = next((server["images"][name] for name in names if name in server.get("images", {})), none)
    form = f"{getattr(settings, 'request_size', '')} {getattr(settings, 'quality', '')}".strip()
    if form in images:
        yield "image_price", images[form]


@cache
def _read(path: str) -> dict[str, dict[str, Any]]:
    """Reads a table: {host: {tokens: {model: {input, cached, written, output}}, images: {model: {form: price}}}}."""
    try:
        table: Any = parse_yaml(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"prices.file={path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise UsageError(f"prices.file={path} holds no servers; expected a file like {TABLE} of this package")
    for host, server in cast("dict[Any, Any]", table).items():
        if wrong := _wrong(server):
            raise UsageError(
                f"prices.file={path}: {host}: {wrong}; expected tokens: {{MODEL: {{input: 1.25, output: 10}}}} or images: "
                "{MODEL: {1024x1024 low: 0.005}}, in US dollars"
            )
    return cast("dict[str, dict[str, Any]]", table)


def _wrong(server: Any) -> str:
    if not isinstance(server, dict):
        return "no tokens and no images"
    values = cast("dict[Any, Any]", server)
    if unknown := values.keys() - {"source", "read", "tokens", "images"}:
        return f"unknown key {sorted(map(str, unknown))[0]!r}"
    for key in ("tokens", "images"):
        if (place := find_mistyped(values.get(key, {}), dict[str, dict[str, float]])) is not None:
            return f"{key}{place} is no price"
    kinds = {kind for prices in values.get("tokens", {}).values() for kind in prices} - {*_TOKENS.values()}
    return f"unknown kind of tokens {min(kinds)!r}" if kinds else ""
