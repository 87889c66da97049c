"""A backbone that answers with the labels of another method, so that the same commands evaluate and compare them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from omegaconf import MISSING

from openmaia.core.components import BackboneConfig, Component, Site
from openmaia.core.errors import UsageError
from openmaia.core.messages import Chat, Reply, Role
from openmaia.core.paths import user_path
from openmaia.core.tables import is_table
from openmaia.interop import label_tables, labels, synthetic
from openmaia.interop.labels import Label
from openmaia.interop.reading import Refused
from openmaia.runs.files import Files

_ABSTENTION = "[DESCRIPTION]: NONE"


@dataclass
class LabelConfig(BackboneConfig):
    """Answers with the labels that another method gave to the units, which are then evaluated like those of an agent."""

    record: str = MISSING
    """A table (.csv) with the columns layer, unit, description and optionally method; another table that
    `openmaia import` reads; or the labels.jsonl that this command writes."""
    model: str = MISSING
    """The name of the method that made the labels."""


class LabelBackbone(Component):
    """Answers at once with the labels that a method gave to the unit, or with an abstention if it gave none."""

    Config: ClassVar = LabelConfig
    reads_prompts = False
    experiments = False
    is_recorded = True
    tasks = frozenset({"description", "published"})

    def __init__(self, path: str, target: str, method: str):
        """Reads the labels.

        Args:
            path: See `read_labels`.
            target: The name of the target.
            method: The name of the method.

        Raises:
            UsageError: The file cannot be read, or holds no labels of the target by the method.
        """
        found = read_labels(path, target, "backbone.record")
        chosen = [label for label in found if (label.target, label.method) == (target, method)]
        if not chosen:
            kinds = ", ".join(sorted({f"{label.method} of {label.target}" for label in found})) or "nothing"
            raise UsageError(
                f"backbone.record={path} holds no labels by {method} of {target} (backbone.model, target.name): {kinds}"
            )
        self._prefix = f"{target}/"
        self._labels = {(label.layer, label.unit): label for label in chosen}

    @classmethod
    def build(cls, config: LabelConfig, site: Site) -> Self:
        assert site.target is not None, "labels are those of a target"
        return cls(config.record, site.target.name, config.model)

    @staticmethod
    def files(config: LabelConfig, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        yield "record", config.record, "folder" if user_path(config.record).is_dir() else "file"

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Chats without a system message belong to no investigation. The reply to them says that labels cannot answer them."""
        return [Reply(text=self._answer(chat)) for chat in chats]

    def _answer(self, chat: Chat) -> str:
        if chat.messages[0].role is not Role.SYSTEM:
            return "(labels of another method cannot answer this)"
        layer, index, _ = chat.conversation.removeprefix(self._prefix).rsplit("/", 2)
        label = self._labels.get((layer, int(index)))
        given = [] if label is None else [text for each in label.labels if (text := " ".join(each.split()))]
        if label is None or not given:
            return _ABSTENTION
        return "\n".join(
            [f"[DESCRIPTION]: {label.text}", *(f"[LABEL {n}]: {one}" for n, one in enumerate(given, start=1))]
        )


def read_labels(path: str, target: str, option: str) -> list[Label]:
    """Reads the labels of units.

    Args:
        path: A table in a format that `openmaia import` reads, optionally with a column `method`; or the labels.jsonl
            that it writes, or the folder of that file.
        target: Name of the target of a table, which does not contain it. Ignored for a labels.jsonl.
        option: Name of the option with which the user gave the path, for messages.

    Raises:
        UsageError: The table cannot be read, or there is no labels.jsonl.
        StoreError: The labels.jsonl is damaged.
    """
    file = user_path(path)
    if not is_table(file):
        folder = file.parent if file.name == labels.NAME else file
        if not (folder / labels.NAME).is_file():
            raise UsageError(
                f"{option}={path}: there is no {folder / labels.NAME}; give a table (.csv), a {labels.NAME}, or the folder "
                "that openmaia import wrote it into"
            )
        return labels.read(Files(str(folder)))
    try:
        return label_tables.read(file, target, file.name)
    except Refused as error:
        raise UsageError(f"{option}={path} {error.message}") from error


def read_truths(path: str, target: str, option: str) -> dict[tuple[str, int], str]:
    """Reads the true labels of units: those by the method "ground truth" if there are any, or else all, by one method.

    Args:
        path: See `read_labels`.
        target: Name of the target. Labels of other targets are left out.
        option: Name of the option with which the user gave the path, for messages.

    Returns:
        By layer and unit index, the labels of the unit, joined by semicolons.

    Raises:
        UsageError: The file cannot be read or has no labels of the target. Or its labels are by several methods, none
            of which is "ground truth".
    """
    found = [label for label in read_labels(path, target, option) if label.target == target]
    methods = {label.method for label in found}
    if not found or (len(methods) > 1 and synthetic.METHOD not in methods):
        raise UsageError(
            f"{option} {path} holds {'labels by ' + ', '.join(sorted(methods)) if found else 'no labels'} of {target}; expected "
            f"the true labels: those of one method, or of the method {synthetic.METHOD!r}"
        )
    method = synthetic.METHOD if synthetic.METHOD in methods else methods.pop()
    return {(label.layer, label.unit): "; ".join(label.labels) for label in found if label.method == method}
