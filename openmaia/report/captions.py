"""What is known about each image of an investigation: what it was asked to show, and whether anybody looked at it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from openmaia.messages import Part
from openmaia.store.records import ImageEntry, Record, ToolCall

OWN = "a picture the agent made"


@dataclass(frozen=True, slots=True)
class Captions:
    """By the image's name. entries: with activation and mask; texts: its prompt or instruction; measured: those whose
    measurement is an image of its own."""

    entries: dict[str, ImageEntry] = field(default_factory=dict[str, ImageEntry])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    measured: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, record: Record) -> "Captions":
        captions = cls()
        for call in (call for turn in record.turns for call in turn.calls):
            captions.entries.update((entry.id, entry) for entry in call.entries)
            texts = captions._texts(call.name, arguments(call))
            captions.texts.update((entry.id, text) for entry, text in zip(call.entries, texts, strict=False))
            if call.name in ("call_neuron", "edit_images"):
                captions.measured.update(references(arguments(call)))
        return captions

    def _texts(self, name: str, given: Sequence[Any]) -> Iterator[str]:
        """One per entry of the call, as far as its arguments tell. Arguments are whatever the agent's code sent."""
        first, second = (_listed(given[n]) if n < len(given) else [] for n in (0, 1))
        match name:
            case "text2image":
                yield from (str(prompt) for prompt in first)
            case "call_neuron":
                yield from (self._text(image) for image in first)
            case "edit_images":
                for image, order in zip(first, second, strict=False):
                    yield self._text(image)
                    yield f"{self._text(image)} → {order}"
            case "dataset_exemplars":
                yield from (f"{kind} {n + 1}" for kind in first for n in range(len(self.entries)))
            case _:
                pass

    def _text(self, image: Any) -> str:
        if isinstance(image, str):
            return image
        names = list(references([image]))
        return self.texts.get(names[0], "") if names else OWN


def arguments(call: ToolCall) -> list[Any]:
    try:
        return _listed(json.loads(call.arguments))
    except ValueError:
        return []


def references(value: Any) -> Iterator[str]:
    """The images named anywhere in a call's arguments."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(cast(list[Any], item)))
        elif isinstance(item, dict):
            named = cast(dict[str, Any], item).get("image")
            if isinstance(named, str):
                yield named


def labels(calls: Sequence[ToolCall]) -> Iterator[str]:
    """Per picture that the calls showed, in order: the line by which the toolbox announced it, or ""."""
    for call in calls:
        before: Part = ""
        for part in call.shown:
            if not isinstance(part, str):
                is_label = isinstance(before, str) and before.startswith("[") and before.endswith("]")
                yield str(before) if is_label else ""
            before = part


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]
