"""A backbone that runs no model but repeats the replies of an earlier investigation."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from omegaconf import MISSING

from openmaia.core.components import BackboneConfig, Component, Site
from openmaia.core.documents import parse_json
from openmaia.core.errors import ServiceError, StoreError, UsageError
from openmaia.core.messages import Chat, Reply, Role
from openmaia.core.paths import user_path
from openmaia.runs.files import unsafe
from openmaia.runs.parquet import read_record


@dataclass
class ReplayConfig(BackboneConfig):
    """Repeats the replies of an earlier investigation."""

    record: str = MISSING
    """The record of an earlier investigation (.parquet) or a history.json of the published MAIA code, which every unit
    repeats; or a folder with a LAYER/UNIT/history.json for each unit."""


class ReplayBackbone(Component):
    """Answers a conversation that has n replies so far with reply n + 1 of the recording, whatever its messages say."""

    Config: ClassVar = ReplayConfig
    reads_prompts = False
    is_recorded = True

    def __init__(self, recording: str):
        """Reads a recording, or finds the recordings in a folder.

        Args:
            recording: A record (.parquet) or a history.json, whose replies every investigation repeats; or a folder
                with LAYER/UNIT/history.json at any depth, as `openmaia export maia` and the published MAIA code write
                it. Each unit then repeats its own replies.

        Raises:
            UsageError: The file does not exist or is no recording, or the folder holds no recording or two of one unit.
        """
        self._recording = recording
        folder = user_path(recording)
        self._units = _recordings(folder) if recording and folder.is_dir() else None
        self._replies = _replies(recording) if self._units is None else []
        self._read = lru_cache(maxsize=256)(_replies)

    @classmethod
    def build(cls, config: ReplayConfig, site: Site) -> Self:
        return cls(config.record)

    @staticmethod
    def files(config: ReplayConfig, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        yield "record", config.record, "folder" if user_path(config.record).is_dir() else "file"

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Raises ServiceError if the recording has no further reply, or the folder none of the unit."""
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        if chat.messages[0].role is not Role.SYSTEM:
            # describe_images and summarize_images ask without a system prompt. Recordings have no replies to them.
            return Reply(text="(a replay cannot answer this)")
        replies = self._replies if self._units is None else self._read(self._file(self._units, chat.conversation))
        given = chat.left_out + sum(message.role is Role.ASSISTANT for message in chat.messages)
        if given >= len(replies):
            raise ServiceError(f"{self._recording} holds {len(replies)} replies, and the conversation needs more")
        words = sum(len(message.text.split()) for message in chat.messages)
        reply = replies[given]
        return replace(reply, prompt_tokens=words, generated_tokens=len(reply.text.split()))

    def _file(self, units: Mapping[tuple[str, int], str], conversation: str) -> str:
        unit = conversation.rpartition("/")[0]
        matching = [key for key in units if unit.endswith(f"/{key[0]}/{key[1]}")]
        if not matching:
            raise ServiceError(f"{self._recording} holds no LAYER/UNIT/history.json of {unit}")
        return units[max(matching, key=lambda key: len(key[0]))]  # not that of layer 1 for a unit of layer blocks/1


def _recordings(folder: Path) -> dict[tuple[str, int], str]:
    units: dict[tuple[str, int], str] = {}
    for path in sorted(folder.rglob("history.json")):
        if not re.fullmatch(r"\d{1,9}", path.parent.name):
            continue
        key = unsafe(path.parent.parent.name), int(path.parent.name)
        if key in units:
            raise UsageError(
                f"backbone.record={folder} holds two histories of unit {key[1]} of {key[0]} ({units[key]} and {path}); give the "
                "folder of one agent and one network"
            )
        units[key] = str(path)
    if not units:
        raise UsageError(
            f"backbone.record={folder} holds no LAYER/UNIT/history.json; give a folder of results, or a record"
        )
    return units


def _replies(recording: str) -> list[Reply]:
    path = user_path(recording)
    if not recording or not path.is_file():
        raise UsageError(
            f"backbone.record={recording!r} is no file; give a record (.parquet), a history.json, or a folder with "
            "LAYER/UNIT/history.json"
        )
    try:
        if path.suffix == ".parquet":
            turns = read_record(path.read_bytes()).turns
            return [Reply(text=turn.reply, reasoning=turn.reasoning) for turn in turns]
        history = cast(list[dict[str, Any]], parse_json(path.read_bytes()))
        return [Reply(text=_text(message["content"])) for message in history if message["role"] == "assistant"]
    except StoreError as error:
        raise UsageError(f"backbone.record={recording!r} cannot be read: {error.message}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"backbone.record={recording!r} is no history of messages with role and content: {error}"
        ) from error


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast(list[dict[str, Any]], content)
    return "\n".join(part["text"] for part in parts if part.get("type") == "text")
