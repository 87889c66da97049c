"""Captions for the images of an investigation: prompts, editing instructions and measurements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from openmaia.core.documents import parse_json
from openmaia.core.messages import Part
from openmaia.runs.records import ImageEntry, Record, ToolCall

_OWN = "an image that the agent made"


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions of the images in a record, by the name in the agent's code, such as `image-3`."""

    entries: dict[str, ImageEntry] = field(default_factory=dict[str, ImageEntry])
    """The entry of each image: the last one if several tool calls have one."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The prompt, "prompt → editing instruction", or for an exemplar "top 1"."""
    measured: set[str] = field(default_factory=set[str])
    """Images that were passed to `call_neuron` or `edit_images`, which return each of them again under a new name."""

    @classmethod
    def of(cls, record: Record) -> "Captions":
        """Collects the captions from the tool calls of all turns."""
        captions = cls()
        for call in (call for turn in record.turns for call in turn.calls):
            captions.entries.update((entry.id, entry) for entry in call.entries)
            texts = captions._texts(call.name, parse_arguments(call))
            captions.texts.update((entry.id, text) for entry, text in zip(call.entries, texts, strict=False))
            if call.name in ("call_neuron", "edit_images"):
                captions.measured.update(find_references(parse_arguments(call)))
        return captions

    def _texts(self, name: str, values: Sequence[Any]) -> Iterator[str]:
        """Yields the texts of the images that a call returned. Those at the end may be missing: agents may pass any
        arguments."""
        first, second = (_as_list(values[n]) if n < len(values) else [] for n in (0, 1))
        match name:
            case "text2image":
                yield from (str(prompt) for prompt in first)
            case "call_neuron":
                yield from (self._text(image) for image in first)
            case "edit_images":
                for image, instruction in zip(first, second, strict=False):
                    yield self._text(image)
                    yield f"{self._text(image)} → {instruction}"
            case "dataset_exemplars":
                yield from (f"{kind} {n + 1}" for kind in first for n in range(len(self.entries)))
            case _:
                pass

    def _text(self, image: Any) -> str:
        if isinstance(image, str):
            return image
        name = next(find_references(image), None)
        return _OWN if name is None else self.texts.get(name, "")


def parse_arguments(call: ToolCall) -> list[Any]:
    """Returns the positional arguments of a tool call; none if they are not valid JSON."""
    try:
        return _as_list(parse_json(call.arguments))
    except ValueError:
        return []


def find_references(value: Any) -> Iterator[str]:
    """Yields the names of all images in parsed arguments, also in nested lists."""
    remaining = [value]
    while remaining:
        item = remaining.pop()
        if isinstance(item, list):
            remaining.extend(reversed(cast(list[Any], item)))
        elif isinstance(item, dict):
            name = cast(dict[str, Any], item).get("image")
            if isinstance(name, str):
                yield name


def find_image_labels(calls: Sequence[ToolCall]) -> Iterator[str]:
    """Yields for each displayed image the text in square brackets directly before it, such as "[image-3, masked]", or
    ""."""
    for call in calls:
        before: Part = ""
        for part in call.shown:
            if not isinstance(part, str):
                is_label = isinstance(before, str) and before.startswith("[") and before.endswith("]")
                yield str(before) if is_label else ""
            before = part


def _as_list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]
