"""Shares the images of an investigation: what its agent drew is measured on all units of the layer, and kept."""

from collections.abc import Iterator

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.services import LayerProbe, Target
from openmaia.core.units import Scope
from openmaia.runs.records import Did, Record
from openmaia.runs.shared import SharedStore

_AT_ONCE = 64
"""Images that are measured in one call."""


def share(record: Record, target: Target, store: SharedStore, most: int) -> None:
    """Keeps the first `most` images of a record, without those that the store has. A repetition changes nothing.

    Images of failed tests and of the confirmation are not among them. Raises ServiceError, and StoreError if the store cannot
    be read or written.
    """
    if record.unit.scope is Scope.NETWORK:
        return  # it has no layer
    known = store.digests(record.unit)
    drawn = {image.digest: (prompt, image) for prompt, image in list_drawn(record)}
    # Cut before those that are known are left out: after a death, a repetition chooses the same ones.
    chosen = [each for digest, each in [*drawn.items()][:most] if digest not in known]
    if not chosen:
        return
    probes = [LayerProbe(layer=record.unit.layer, image=image) for _, image in chosen]
    parts = [target.respond(probes[first : first + _AT_ONCE]) for first in range(0, len(probes), _AT_ONCE)]
    store.add(record.unit, chosen, np.stack([values for part in parts for values in part]).astype(np.float32))


def list_drawn(record: Record) -> Iterator[tuple[str, EncodedImage]]:
    """Yields prompt and image of what the agent drew from prompts alone, without images that lack something of the prompt."""
    images = record.images
    for entry in (entry for turn in record.turns for call in turn.calls for entry in call.entries):
        if entry.did in (Did.DREW, Did.BASE) and entry.prompt and not entry.missing and entry.prompt.isprintable():
            yield entry.prompt, images[entry.original]
