"""Single files of weights: checkpoints of torchvision, and whatever files the config names itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openmaia.doctor.files import File, damage
from openmaia.doctor.finding import Finding, missing, note, ok, spoken
from openmaia.schema import Config


def named(config: Config) -> Iterator[Finding]:
    """Files of the user's own: target.weights, target.directions, backbone.record."""
    target = config.target
    if target.kind == "network" and target.weights not in ("", "random"):
        yield _file("target.weights", target.weights)
    for layer, path in target.directions.items():
        yield _file(f"target.directions.{layer}", path)
    if config.backbone.kind == "replay":
        yield _file("backbone.record", config.backbone.record)


def _file(key: str, given: str) -> Finding:
    path = Path(given).expanduser()
    if not path.is_file():
        return missing(f"{key}={given}: there is no such file", f"{key}=…")
    file = File(size=path.stat().st_size, path=path)
    if why := damage(file):
        return missing(f"{key}={given} ({file.size} bytes) is truncated or damaged: {why}", "copy it again")
    return ok(f"{key}={given}: {spoken(file.size)}")


def looked_up(network: str, known: dict[str, Any], late: bool) -> tuple[Finding, int, Path | None]:
    """(what was found, bytes to be fetched, into which folder). known: what the probe said of the network."""
    given = f"target.network={network}"
    if near := known.get("unknown"):
        return missing(f"{given} is not known", f"the nearest are {', '.join(near[:3])}"), 0, None
    if "url" not in known:
        why = "within the time" if late else "without torchvision"
        return note(f"{given}: its checkpoint could not be looked up {why}"), 0, None
    path = Path(known["folder"]) / known["url"].rpartition("/")[2]
    if path.is_file():
        size = path.stat().st_size
        # A download that was interrupted leaves a file of another name, so that this one is whole.
        return ok(f"{given}: {spoken(size)} in {path.parent}"), 0, None
    size = f"{spoken(known['size'])} " if known["size"] else ""
    found = note(
        f"{given}: {size}to be fetched from {known['url']}",
        f"the run fetches it when it starts; before that: curl -L --create-dirs -o {path} {known['url']}",
    )
    return found, known["size"], path.parent
