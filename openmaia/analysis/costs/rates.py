"""Finds the measured rates of the components of a config. A model never gets the rate of another one."""

import importlib.resources
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config.loading import UNREADABLE, read_yaml
from openmaia.config.machine import POOLS, TEST_GENERATOR
from openmaia.config.schema import Config, model_of, pools_by_role
from openmaia.config.sections import site
from openmaia.core.components import of_config, target_class
from openmaia.core.errors import UsageError

_TIMES = {"fixed": 0.0, "per_item": 0.0, "gpus": 0.0, "max_batch": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRates:
    """What a run without GPUs needs, measured with the same components."""

    start: float
    """CPU seconds of all processes together for Ray, loading and exemplars."""
    investigation: float
    """CPU seconds for each investigation, with its test and its pages in the report."""
    asked: Mapping[str, Sequence[float]]
    """The calls of an investigation and the requests in them, by service."""
    tokens: Sequence[float]
    """Of an investigation: numbers of prompt tokens, cached prompt tokens and generated tokens."""
    disk: float
    """MB of the run directory for each investigation."""
    exemplars: float
    """MB of the exemplars of all units of the layers."""
    source: str
    """Where it was measured, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """The rates that hold for one config."""

    services: Mapping[str, Mapping[str, Any]]
    """The times of each service whose rate is known: `fixed`, `per_item`, `gpus`, `max_batch`."""
    sources: Mapping[str, str]
    """Where the time of each of them was measured, in words."""
    unrated: Mapping[str, str]
    """For each other service, what is not known, in words."""
    per_turn: Mapping[str, Any]
    turns: float
    about: str
    """The origin of the other figures, in words."""


@cache
def _built_in() -> Any:
    return yaml.safe_load((importlib.resources.files(__package__ or "") / "rates.yaml").read_text("utf-8"))


def services_of(config: Config) -> Mapping[str, Any]:
    """Returns the section of the model that answers each service of a sweep."""
    own = (TEST_GENERATOR,) if pools_by_role(config)[TEST_GENERATOR] == TEST_GENERATOR else ()
    return {role: model_of(config, role) for role in (*POOLS, *own)}


def find_rates(config: Config, path: str = "", card: str = "", *, is_on_gpus: bool = False) -> RateTable:
    """Finds the rates of a config.

    Args:
        config: The config of a sweep.
        path: A YAML file whose figures replace the built-in ones; empty for these alone.
        card: Part of the name of the card, such as `h100`. Empty: any card on which a component was measured.
        is_on_gpus: Whether all models are put on GPUs, whatever the config says (`--gpus`).

    Raises:
        UsageError: The file cannot be read, or contains an unknown key or an invalid value.
    """
    found: dict[str, Any] = {}
    unrated: dict[str, str] = {}
    for role, settings in services_of(config).items():
        pool = pools_by_role(config)[role]
        title = f"{of_config(settings).title(settings)} as {role.replace('_', ' ')}"
        if not of_config(settings).is_served and not (is_on_gpus or getattr(config.pools, pool).num_gpus):
            unrated[role] = f"no rate measured for {title} without a GPU (pools.{pool}.num_gpus=0)"
        elif entry := _entry(config, role, card):
            found[role] = entry
        else:
            unrated[role] = f"no rate measured for {title}{_elsewhere(config, role, card)}"
    try:
        merged, own = _merge(path, {role: entry["times"] for role, entry in found.items()})
    except (*UNREADABLE, OmegaConfBaseException) as error:
        raise UsageError(f"--rates {path} cannot be used: {' '.join(str(error).split())}") from error
    given = dict.fromkeys(own, f"given in {path}")
    sources = {role: f"measured on one {entry['card']}, {entry['measured']}" for role, entry in found.items()} | given
    return RateTable(
        services={role: merged["services"][role] for role in services_of(config) if role in sources},
        sources=sources,
        unrated={role: words for role, words in unrated.items() if role not in given},
        per_turn=merged["per_turn"],
        turns=merged["turns"],
        about=merged["about"],
    )


def core_rates(config: Config) -> CoreRates | None:
    """Returns the rates of a config that uses no GPU; None if its components were not measured."""
    if any(getattr(config.pools, pool).num_gpus for pool in pools_by_role(config).values()):
        return None
    for entry in _built_in()["without_gpus"]:
        if all(_has(getattr(config, key), wanted) for key, wanted in entry["components"].items()):
            figures = {key: entry[key] for key in ("start", "investigation", "asked", "tokens", "disk", "exemplars")}
            return CoreRates(**figures, source=f"measured on {entry['processor']}, {entry['measured']}")
    return None


def image_kb(config: Config) -> tuple[float, str]:
    """Returns the size of a lossless image of the generator in KB, and what it was measured on, in words.

    A side that was not measured is scaled by its pixels from the nearest one that was.
    """
    kind, size = config.generator.kind, getattr(config.generator, "size", 0)
    table = _built_in()["images"]
    name = kind if kind in table else "photographs"
    sizes = cast("dict[int, float]", table[name])
    nearest = min(sizes, key=lambda side: abs(math.log(side / max(size, 1))))
    scaled = "" if nearest == size else f", scaled to {size}"
    return sizes[nearest] * (size / nearest) ** 2, f"{name} of {nearest} pixels{scaled}, measured {table['measured']}"


def loaded(config: Config, figure: Literal["memory", "download"]) -> Mapping[str, float | None]:
    """Returns a measured figure of each pool that loads weights; None where it was not measured.

    Args:
        config: The config of a sweep.
        figure: `memory`: GiB on the card of a replica, for a backbone without its KV cache; `download`: GB of the files.
    """
    # An editor that is the generator loads nothing of its own.
    return {
        role: None if (entry := _entry(config, role, "")) is None else entry.get(figure)
        for role, settings in services_of(config).items()
        if (role == TEST_GENERATOR or pools_by_role(config)[role] == role) and _has_weights(config, role, settings)
    }


def _has_weights(config: Config, role: str, settings: Any) -> bool:
    found, key = of_config(settings), "evaluate.generator" if role == TEST_GENERATOR else role
    library = role == "target" and target_class(settings).library_weights(settings)
    return bool(library) or any(True for _ in found.weights(settings, site(config, key)))


def _entry(config: Config, role: str, card: str) -> Any:
    return next(
        (each for each in _of_role(role) if _fits(config, role, each) and card.lower() in each["card"].lower()),
        None,
    )


def _fits(config: Config, role: str, entry: Any) -> bool:
    others = all(_has(getattr(config, section), keys) for section, keys in entry.get("beside", {}).items())
    return _has(services_of(config)[role], entry["component"]) and others


def _of_role(role: str) -> Sequence[Any]:
    # Any role's generator draws test images, too.
    wanted = "generator" if role == TEST_GENERATOR else role
    return [each for each in _built_in()["services"] if each["role"] == wanted]


def _has(settings: Any, wanted: Mapping[str, Any]) -> bool:
    return all(getattr(settings, key, None) == value for key, value in wanted.items())


def _elsewhere(config: Config, role: str, card: str) -> str:
    """Says on which card nothing was measured, and what of the same model was."""
    settings = services_of(config)[role]
    if of_config(settings).is_served:
        return ", which is on a server"
    here = f" on {card.upper()}" if card else " on any card"
    near = [_difference(config, role, each) for each in _of_role(role) if _has(settings, _model(each["component"]))]
    return here + (f" (measured: {'; '.join(near)})" if near else "")


def _model(component: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: component[key] for key in ("kind", "model", "network") if key in component}


def _difference(config: Config, role: str, entry: Any) -> str:
    own = _lacking("", services_of(config)[role], entry["component"])
    others = (_lacking(f"{key}.", getattr(config, key), keys) for key, keys in entry.get("beside", {}).items())
    return " ".join([*own, *chain.from_iterable(others), f"on {entry['card']}"])


def _lacking(prefix: str, settings: Any, wanted: Mapping[str, Any]) -> list[str]:
    return [f"{prefix}{key}={value}" for key, value in wanted.items() if getattr(settings, key, None) != value]


def _merge(path: str, times: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Returns the figures with those of a file, and the services that the file gives.

    Raises:
        ValueError: A value is invalid. OSError and errors of YAML and OmegaConf are passed on.
    """
    built_in = _built_in()
    services = {role: {**_TIMES, **times.get(role, {})} for role in (*POOLS, TEST_GENERATOR)}
    about = "turns and calls assumed (openmaia/analysis/costs/rates.yaml)"
    table: Any = OmegaConf.create(
        {"about": about, "services": services, "turns": float(built_in["turns"]), "per_turn": built_in["per_turn"]}
    )
    OmegaConf.set_struct(table, True)
    own: Any = read_yaml(Path(path))[0] if path else {"about": about}
    if "about" not in own:
        raise ValueError("about is missing; say where the figures come from")
    rates: Any = OmegaConf.to_container(OmegaConf.merge(table, own))
    figures = yaml.safe_dump({name: rates[name] for name in rates if name != "about"})
    if wrong := re.search(r"^ *(?:\w+:|-) +(?!\d).*", figures, re.MULTILINE):
        raise ValueError(f"{wrong[0].strip()!r}; expected a number of 0 or more")
    batches = [service["max_batch"] for service in rates["services"].values()]
    if any(type(number) is not int or number < 1 for number in batches):
        raise ValueError(f"max_batch: {batches}; expected whole numbers above 0")
    given: dict[str, dict[str, Any]] = own.get("services") or {}
    if untimed := [
        role for role, each in given.items() if role not in times and not {"fixed", "per_item"} & each.keys()
    ]:
        raise ValueError(
            f"services.{untimed[0]}: fixed and per_item are missing, and nothing is built in for this model"
        )
    return rates, given
