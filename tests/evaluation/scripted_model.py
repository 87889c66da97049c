"""Language models whose answers a test chooses: real implementations of Backbone, without weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from openmaia.core.messages import Chat, Reply
from openmaia.evaluation.language_model import LanguageModel


class ScriptedModel:
    """A backbone that answers by a function, and keeps the chats."""

    def __init__(self, answer: Callable[[str, int], str]):
        """Stores the function, which is given the text of the question and the number of the attempt, from 0."""
        self._answer, self.chats = answer, list[Chat]()

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.chats += [replace(chat, messages=list(chat.messages)) for chat in chats]
        return [Reply(text=self._answer(chat.messages[1].text, len(chat.messages) // 2 - 1)) for chat in chats]


def answering(*answers: str) -> ScriptedModel:
    """Gives the n-th answer in the n-th attempt, and the last one from then on."""
    return ScriptedModel(lambda _, attempt: answers[min(attempt, len(answers) - 1)])


def model(backbone: ScriptedModel) -> LanguageModel:
    return LanguageModel(backbone, "scripted")
