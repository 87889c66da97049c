"""A backbone that runs no model but repeats the replies of an earlier investigation.

The replies are read from a record, which is the Parquet file of an investigation, or from a history.json of the
published MAIA code.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from openmaia.core.errors import ServiceError, StoreError, UsageError
from openmaia.core.messages import Chat, Reply, Role
from openmaia.runs.parquet import read_record


class ReplayBackbone:
    """A backbone that answers with the replies of a recording.

    A conversation that has n replies so far gets reply n + 1 of the recording, whatever its messages say. The requests
    of the tools describe_images and summarize_images have no system prompt. Recordings do not contain their replies, so
    they get a fixed text.
    """

    def __init__(self, recording: str):
        """Reads the recording.

        Args:
            recording: A record (.parquet) or a history.json.

        Raises:
            UsageError: The file does not exist or is not a recording.
        """
        self._recording = recording
        self._replies = _replies(recording)

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Returns the next reply of the recording for each chat.

        Raises:
            ServiceError: The recording has no further reply.
        """
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        if chat.messages[0].role is not Role.SYSTEM:
            return Reply(text="(a replay cannot answer this)")
        given = sum(message.role is Role.ASSISTANT for message in chat.messages)
        if given >= len(self._replies):
            raise ServiceError(f"{self._recording} holds {len(self._replies)} replies, and the conversation needs more")
        text = self._replies[given]
        words = sum(len(message.text.split()) for message in chat.messages)
        return Reply(text=text, prompt_tokens=words, generated_tokens=len(text.split()))


def _replies(recording: str) -> list[str]:
    path = Path(recording)
    if not recording or not path.is_file():
        raise UsageError(f"backbone.record={recording!r} is no file; give a record (.parquet) or a history.json")
    try:
        if path.suffix == ".parquet":
            return [turn.reply for turn in read_record(path.read_bytes()).turns]
        history = cast(list[dict[str, Any]], json.loads(path.read_text(encoding="utf-8")))
        return [_text(message["content"]) for message in history if message["role"] == "assistant"]
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
