"""What the doctor says, one thing at a time."""

from dataclasses import dataclass
from typing import Literal

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """remedy: the exact command or setting, where there is one."""

    state: Literal["ok", "note", "missing"]
    what: str
    remedy: str = ""


def ok(what: str) -> Finding:
    return Finding(state="ok", what=what)


def note(what: str, remedy: str = "") -> Finding:
    return Finding(state="note", what=what, remedy=remedy)


def missing(what: str, remedy: str) -> Finding:
    return Finding(state="missing", what=what, remedy=remedy)


def spoken(size: float) -> str:
    """A number of bytes as people say it."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.1f} KiB"
