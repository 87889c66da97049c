"""What has been told to W&B already, kept in the run directory, so that a resumed run goes on and repeats nothing."""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from openmaia.errors import StoreError
from openmaia.store.files import Files
from openmaia.store.records import dumps
from openmaia.tracking.series import plain

NAME = "tracking/wandb.json"
BLOCK = 1000
"""Steps reserved at once. W&B's steps only go up; a gap in them does no harm."""

Key = tuple[str, str, int, int]
"""target, layer, index, replicate"""


@dataclass(slots=True)
class Ledger:
    """id: of the W&B run. began: its first start, seconds since the epoch. Noted first and told then: what dies in
    between is missing from the history (never from the table), and nothing is there twice."""

    files: Files
    id: str
    began: float
    step: int = 0
    reserved: int = 0
    units: set[Key] = field(default_factory=set[Key])
    scored: set[Key] = field(default_factory=set[Key])

    @classmethod
    def open(cls, files: Files, name: str) -> "Ledger":
        """A new id where there is none: from the name, the place and the time of the first start. Raises StoreError for
        a damaged file."""
        data = files.read(NAME)
        if data is None:
            began = time.time()
            digest = hashlib.sha256(f"{files.path('')}\n{began!r}".encode()).hexdigest()[:12]
            return cls(files, f"{plain(name)[:40]}-{digest}", began)
        try:
            noted: dict[str, Any] = json.loads(data)
            units, scored = ({(str(t), str(y), int(i), int(r)) for t, y, i, r in noted[k]} for k in ("units", "scored"))
            # Steps up to `reserved` may have been used by whoever held the ledger before.
            at = int(noted["reserved"])
            return cls(files, plain(str(noted["id"])), float(noted["began"]), at, at, units, scored)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{files.path(NAME)} is damaged; remove it to start a new W&B run ({error!r})") from error

    def note(self, units: Iterable[Key] = (), scored: Iterable[Key] = ()) -> None:
        self.units |= set(units)
        self.scored |= set(scored)
        self._write()

    def next_step(self) -> int:
        if self.step >= self.reserved:
            self.reserved = self.step + BLOCK
            self._write()
        self.step += 1
        return self.step

    def _write(self) -> None:
        noted = {"id": self.id, "began": self.began, "reserved": self.reserved}
        self.files.write(NAME, dumps(noted | {"units": sorted(self.units), "scored": sorted(self.scored)}).encode())
