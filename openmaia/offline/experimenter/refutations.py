"""Reads which labels failed a test out of the messages of an investigation."""

import re
from collections.abc import Sequence

from openmaia.core.messages import Message, Role

_TEST = "[TEST]:"
_FAILED = re.compile(r"^- the label '(?P<label>.*)' failed: ", re.MULTILINE)


def is_refutation(message: Message) -> bool:
    """Returns whether a message sends an answer back because of a failed test."""
    return message.role is Role.USER and message.text.startswith(_TEST)


def read_refuted(messages: Sequence[Message]) -> list[frozenset[str]]:
    """Returns the labels that failed, for each answer that was sent back."""
    tests = (message.text for message in messages if is_refutation(message))
    return [frozenset(match["label"] for match in _FAILED.finditer(text)) for text in tests]
