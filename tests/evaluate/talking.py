"""Backbones that say what a test wants: real implementations of the Protocol, without a model."""

from collections.abc import Callable, Sequence

from openmaia.evaluate.asking import Asker
from openmaia.messages import Chat, Reply


class Talker:
    """Answers from what it is asked; keeps the conversations."""

    def __init__(self, answer: Callable[[str, int], str]):
        """answer: (the question's text, how many replies the conversation holds) -> text"""
        self._answer, self.chats = answer, list[Chat]()

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.chats += [Chat(**{name: getattr(chat, name) for name in ("conversation", "seed", "max_tokens")}, messages=list(chat.messages)) for chat in chats]  # fmt: skip
        return [Reply(text=self._answer(chat.messages[1].text, len(chat.messages) // 2 - 1)) for chat in chats]


def in_turn(*answers: str) -> Talker:
    """The n-th answer to the n-th try, the last one from then on."""
    return Talker(lambda _, tried: answers[min(tried, len(answers) - 1)])


def asker(talker: Talker) -> Asker:
    return Asker(talker, "talker")
