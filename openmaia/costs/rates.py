"""Service times and habits of agents as a file states them: the schema of a rates file, and the one that is built in."""

import importlib.resources
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.errors import UsageError
from openmaia.schema import POOLS

ASSUMED = "assumed.yaml"


@dataclass
class ServiceRates:
    """A batch of n takes fixed + n * per_item seconds. gpus, max_batch: of the replica of which that is said."""

    fixed: float = MISSING
    per_item: float = MISSING
    gpus: float = MISSING
    max_batch: int = MISSING
    about: str = MISSING
    """Where the figures come from: measured (on what, when), published (where), or assumed (from what)."""


@dataclass
class ServicesRates:
    target: ServiceRates = field(default_factory=ServiceRates)
    generator: ServiceRates = field(default_factory=ServiceRates)
    editor: ServiceRates = field(default_factory=ServiceRates)
    backbone: ServiceRates = field(default_factory=ServiceRates)


@dataclass
class TurnsRates:
    """weights: number of turns -> how frequent, in any unit."""

    weights: dict[int, float] = MISSING
    about: str = MISSING


@dataclass
class CallRates:
    """In which share of the turns a service is called, and with how many requests then."""

    share: float = 0.0
    requests: int = 0


@dataclass
class CallsRates:
    """backbone: what tools ask it, beside the one reply of every turn."""

    target: CallRates = field(default_factory=CallRates)
    generator: CallRates = field(default_factory=CallRates)
    editor: CallRates = field(default_factory=CallRates)
    backbone: CallRates = field(default_factory=CallRates)


@dataclass
class TokensRates:
    """Of one reply. cached: of the prompt's."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0


@dataclass
class TurnRates:
    """sandbox_seconds: in which a turn waits for no service."""

    sandbox_seconds: float = MISSING
    about: str = MISSING
    calls: CallsRates = field(default_factory=CallsRates)
    tokens: TokensRates = field(default_factory=TokensRates)


@dataclass
class Rates:
    about: str = MISSING
    services: ServicesRates = field(default_factory=ServicesRates)
    turns: TurnsRates = field(default_factory=TurnsRates)
    per_turn: TurnRates = field(default_factory=TurnRates)


def assumed() -> Rates:
    """The built-in table; every figure in it says what it was assumed from."""
    source = importlib.resources.files("openmaia.costs") / ASSUMED
    return _parsed(source.read_text(encoding="utf-8"), ASSUMED)


def read(path: str) -> Rates:
    """Raises UsageError for a file that is missing, or has unknown keys, missing ones, or values that make no sense."""
    try:
        return _parsed(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--rates {path} cannot be read: {error}") from error


def _parsed(text: str, name: str) -> Rates:
    try:
        loaded = OmegaConf.create(text)
        merged = OmegaConf.merge(OmegaConf.structured(Rates), loaded)
        missing = sorted(OmegaConf.missing_keys(merged))
        if missing:
            raise UsageError(
                f"--rates {name} leaves out {', '.join(missing)}; openmaia/costs/assumed.yaml has them all"
            )
        rates = cast(Rates, OmegaConf.to_object(cast(DictConfig, merged)))
    except yaml.YAMLError as error:
        raise UsageError(f"--rates {name} is not valid YAML: {' '.join(str(error).split())}") from error
    except (OmegaConfBaseException, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        key = getattr(error, "full_key", None)
        raise UsageError(f"--rates {name}: {f'{key}: ' if key else ''}{str(error).splitlines()[0]}") from error
    _refuse_senseless(rates, name)
    return rates


def _refuse_senseless(rates: Rates, name: str) -> None:
    wrong: list[str] = []
    for role in POOLS:
        service: ServiceRates = getattr(rates.services, role)
        call: CallRates = getattr(rates.per_turn.calls, role)
        if service.fixed < 0 or service.per_item < 0 or service.fixed + service.per_item <= 0:
            wrong.append(f"services.{role}: fixed and per_item are seconds, and one of them is above 0")
        if service.max_batch < 1 or service.gpus < 0:
            wrong.append(f"services.{role}: max_batch is 1 or more, gpus 0 or more")
        if not 0 <= call.share <= 1 or call.requests < 0:
            wrong.append(f"per_turn.calls.{role}: share lies between 0 and 1, requests is 0 or more")
    weights = rates.turns.weights
    if not weights or min(weights) < 1 or min(weights.values()) < 0 or not sum(weights.values()) > 0:
        wrong.append("turns.weights: numbers of turns from 1, each with a weight of 0 or more, one above 0")
    if rates.per_turn.sandbox_seconds < 0:
        wrong.append("per_turn.sandbox_seconds: 0 or more")
    if wrong:
        raise UsageError(f"--rates {name}: {'; '.join(wrong)}")
