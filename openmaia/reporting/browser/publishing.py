"""What a published report leaves out: images that must not be published, and what is private about the machine of the run."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import escape

from openmaia.core.components import stored
from openmaia.core.secrets import MARK, SHORTEST, redacted
from openmaia.reporting.browser.unit.pictures import Origin
from openmaia.runs.control import giver
from openmaia.runs.records import HUMAN
from openmaia.runs.run import Run
from openmaia.runs.votes import read_votes

PUBLISHED_SIDE = 300
"""Longest side in pixels of the images on a published page."""
_UNKNOWN = "whose licence is not known"
_OF_USER = "which a component of the user makes, whose licence is not known"
_SECRET = re.compile(r"(?i)token|secret|passw|credential|(?:^|_)key(?:$|_)|api_?key")
"""Names of environment variables whose values are in nothing that is published."""
_IMAGE = r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+|\breceiveValues\(\"\w+\", \"\w+\", \"[A-Za-z0-9+/=]*\""
"""Bytes in base64, in which a part may look like a path."""
_LETTER = r"(?:[\w.@%+=,-]|\\{1,2}u[0-9a-f]{4})"
_PATH = rf"(?:(?<=\\n|\\t|\\r)|(?<![\w/<.~+\\-]))~?(?:/{_LETTER}+){{2,}}/?"
"""After an escaped line break in a script, too, and with escaped letters."""
_LOCAL = r"(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01])|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7]))"
_ADDRESS = rf"(?<![\d.]){_LOCAL}(?:\.\d{{1,3}}){{2,3}}(?![\d.]*\d)"
_STORE = r"\b(?:s3a?|gcs|gs|abfss?|az|hdfs|file|nfs|sftp|ssh|ray|tcp|grpcs?|fsspec\+\w+)://[^\s'\"<>\\]+"
_HOST = r"\bhttps?://(?:[\w-]+|\d+(?:\.\d+){3}|\[[0-9a-fA-F:]+\])(?=[:/\s'\"<>\\]|$)(?::\d+)?"
_PRIVATE = re.compile(
    f"(?P<image>{_IMAGE})|(?P<store>{_STORE})|(?P<host>{_HOST})|(?P<address>{_ADDRESS})|(?P<path>{_PATH})"
)
_TEXTS = frozenset({".html", ".js", ".csv", ".svg", ".tex", ".md"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How a run is published."""

    licence: str = ""
    """The licence of the dataset's images that the user states; empty if none is."""
    withheld: Mapping[Origin, str] = field(default_factory=dict[Origin, str])
    """Why images of each origin are left out, as the end of a sentence about them."""

    @classmethod
    def of_run(cls, run: Run, licence: str = "") -> "Publication":
        """Reads from the config of a run which of its images may be published."""
        config = run.config()
        drawing: dict[str, Mapping[str, Any] | None] = {
            "generator": config["generator"],
            "editor": config["editor"],
            "test generator": config["evaluate"]["generator"],
        }
        withheld: dict[Origin, str] = {}
        is_brought = bool(config["tools"]) or any(str(row["backbone"]).startswith(HUMAN) for row in run.headers())
        if not licence and (reason := _UNKNOWN if is_brought else _of_dataset(config)):
            withheld[Origin.DATASET] = reason
        drawn = [_find_reason(section, role.removeprefix("test ")) for role, section in drawing.items() if section]
        if not licence and (reason := next(filter(None, drawn), "")):
            withheld[Origin.DRAWN] = reason
        return cls(licence=licence, withheld=withheld)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out and why, a sentence for each."""
        names = {Origin.DATASET: "images of the dataset", Origin.DRAWN: "generated and edited images"}
        return tuple(f"Left out: the {names[origin]}, {reason}." for origin, reason in self.withheld.items())


def _of_dataset(config: Mapping[str, Any]) -> str:
    """Images of the dataset are also those of `exemplars.folder`, of imported exemplars, and of `bank.folder`; and those that people
    and tools of the user bring in count as such."""
    exemplars, kind = config["exemplars"], config["pictures"]["kind"]
    is_other = exemplars["dataset"] not in ("", kind) and not exemplars["dataset"].startswith(f"{kind}-")
    if is_other or exemplars["folder"] or config["bank"]["folder"]:
        return _UNKNOWN
    return _find_reason(config["pictures"], "pictures")


def _find_reason(section: Mapping[str, Any], role: str) -> str:
    found = stored(section, role)
    if found is None:
        return _UNKNOWN if role == "pictures" else _OF_USER
    return found[0].withheld(found[1])


class Cleaner:
    """Takes what is private out of the texts of a published report: paths, addresses of machines and stores, secrets in the
    environment of this process, and who gave orders."""

    def __init__(self, run: Run):
        private = {value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= SHORTEST}
        values = {form for value in (*private, *_places(run)) for form in _forms(value)}
        self._exact = sorted(values, key=len, reverse=True)

    def clean(self, name: str, data: bytes) -> bytes:
        """Returns the content of a file without what is private. Images are returned as they are."""
        if Path(name).suffix not in _TEXTS:
            return data
        text = data.decode(errors="replace")
        for value in self._exact:
            text = text.replace(value, MARK)
        return _PRIVATE.sub(_shorten, text).encode()


def _places(run: Run) -> Iterator[str]:
    """Yields the names of this user and machine in orders, and folders that a path alone would not give away."""
    yield giver()
    yield from {name for row in run.headers() if (name := str(row["backbone"])).startswith(f"{HUMAN}: ")}
    cast = (vote for votes in read_votes(run).by_investigation.values() for vote in votes)
    yield from {f"{vote.person}, correcting" for vote in cast}
    for place in (str(Path.home()), os.getcwd(), run.files.root):
        if len(Path(place).parts) > 1 and len(place) >= SHORTEST:
            yield place


def _forms(value: str) -> Iterator[str]:
    """Yields a text as it stands in HTML and, in JSON and JSON within JSON, in scripts."""
    quoted = json.dumps(value, ensure_ascii=False)[1:-1]
    yield from (value, str(escape(value)), quoted, json.dumps(value)[1:-1], json.dumps(quoted)[1:-1])


def _shorten(found: re.Match[str]) -> str:
    if found["image"]:
        return found[0]
    if found["address"]:
        return MARK
    if found["host"]:
        return f"{found[0].partition('://')[0]}://…"
    last = redacted(found[0]).rstrip("/").rpartition("/")[2]
    return f"…/{last}"
