"""Everything together. What takes time is asked at the same time."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from openmaia.config import load
from openmaia.doctor import (
    checkpoints,
    cluster,
    disk,
    gpus,
    installed,
    libraries,
    machine,
    placing,
    pools,
    servers,
    weights,
)
from openmaia.doctor.finding import Finding, ok
from openmaia.doctor.gpus import Card
from openmaia.doctor.hub import Hub
from openmaia.doctor.libraries import Libraries
from openmaia.doctor.sources import looked_up, network, sources
from openmaia.errors import UsageError
from openmaia.schema import Config


def examination(given: Sequence[str], patience: float) -> list[Finding]:
    """See `examine`."""
    config, wrong = _loaded(given)
    there = installed.distributions()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(libraries.ask, looked_up(config) if config else "", patience)
        driver = pool.submit(gpus.listed)
        about = pool.submit(_config, config, there, asked, driver, patience) if config else None
        findings = [machine.python(), *installed.versions(there), machine.size(), machine.sandbox(), machine.pictures()]
        known = asked.result()
        findings += gpus.findings(_by_torch(known), driver.result(), known.torch)
        findings += libraries.findings(known)
        return [*findings, *wrong, *(about.result() if about else [])]


def _loaded(given: Sequence[str]) -> tuple[Config | None, list[Finding]]:
    try:
        return (load(given) if given else None), []
    except UsageError as error:
        return None, [Finding(state="missing", what=error.message)]


def _by_torch(known: Libraries) -> list[Card] | None:
    return known.cards if known.torch else None


def _config(
    config: Config,
    there: installed.Versions,
    asked: Future[Libraries],
    driver: Future[list[Card]],
    patience: float,
) -> list[Finding]:
    with ThreadPoolExecutor() as pool:
        answered = pool.submit(servers.findings, config)
        joined = pool.submit(cluster.ask, config.ray.address, patience) if config.ray.address != "local" else None
        stores = pool.submit(_weights, config, asked)
        cards = _by_torch(asked.result()) or driver.result()
        about_weights, looked = stores.result()
        elsewhere = joined.result() if joined else None
        findings = installed.needed(config, there, bool(cards))
        findings += [*machine.folders(config), *checkpoints.named(config), *about_weights]
        findings += [elsewhere.finding] if elsewhere else []
        findings += placing.places(config, elsewhere.gpus if elsewhere else [len(cards)])
        findings += pools.quantized(config, bool(cards))
        findings += pools.fits(config, looked, [] if elsewhere else cards)
        findings += answered.result()
    if all(finding.state != "missing" for finding in findings):
        findings.append(ok(f"config {config.name}: nothing that it names is missing"))
    return findings


def _weights(config: Config, asked: Future[Libraries]) -> tuple[list[Finding], list[weights.Weights]]:
    hub = Hub()
    looked = weights.look(list(sources(config)), hub)
    owed: dict[Path, int] = {}
    single: list[Finding] = []
    if name := looked_up(config):
        known = asked.result()
        if repository := known.checkpoint.get("hub"):
            looked += weights.look([network(repository)], hub)
        else:
            finding, size, folder = checkpoints.looked_up(name, known.checkpoint, known.late)
            single.append(finding)
            owed |= {folder: size} if folder else {}
    owed[hub.cache] = sum(each.to_fetch for each in looked)
    findings = [*single, *(each.finding for each in looked), *weights.silence(looked, hub)]
    return [*findings, *disk.room(owed)], looked
