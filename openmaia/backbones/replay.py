"""Plays the replies of an earlier record, or of a published history.json, again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from openmaia.errors import ServiceError, UsageError
from openmaia.messages import Chat, Reply, Role
from openmaia.store.parquet import read_record


class ReplayBackbone:
    """The n-th reply of the recording answers a conversation that holds n replies already, whatever else it says.

    Requests of describe_images and summarize_images are no part of a recording's replies and get a note instead.
    """

    def __init__(self, recording: str):
        self._recording = recording
        self._replies = _replies(recording)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        if chat.messages[0].role is not Role.SYSTEM:
            return Reply(text="(a replay has nobody to ask)")
        said = sum(message.role is Role.ASSISTANT for message in chat.messages)
        if said >= len(self._replies):
            raise ServiceError(f"{self._recording} holds {len(self._replies)} replies, and the conversation needs more")
        text = self._replies[said]
        heard = sum(len(message.text.split()) for message in chat.messages)
        return Reply(text=text, prompt_tokens=heard, generated_tokens=len(text.split()))


def _replies(recording: str) -> list[str]:
    path = Path(recording)
    if not recording or not path.is_file():
        raise UsageError(f"backbone.record={recording!r} is no file; give a record (.parquet) or a history.json")
    if path.suffix == ".parquet":
        return [turn.reply for turn in read_record(path.read_bytes()).turns]
    try:
        history = cast(list[dict[str, Any]], json.loads(path.read_text(encoding="utf-8")))
        return [_text(message["content"]) for message in history if message["role"] == "assistant"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"backbone.record={recording!r} is no history of messages with role and content: {error}"
        ) from error


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast(list[dict[str, Any]], content)
    return "\n".join(part["text"] for part in parts if part.get("type") == "text")
