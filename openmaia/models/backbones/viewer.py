"""A backbone that takes no images, and its viewer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, ViewerConfig
from openmaia.core.errors import OpenMaiaError
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone


@dataclass
class NoViewerConfig(ViewerConfig):
    """Nothing describes images."""


class NoViewer(Component):
    """The agent only learns the activations of images."""

    Config: ClassVar = NoViewerConfig
    is_absent = True

    def __init__(self, config: Any = None):
        pass

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(text="(no description)") for _ in chats]


class BackboneWithViewer:
    """Passes chats with images to a viewer, and all others to the agent's model."""

    def __init__(self, agent: Backbone, viewer: Backbone):
        self._agent, self._viewer = agent, viewer

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        shows = [any(message.images for message in chat.messages) for chat in chats]
        answers: dict[int, Reply] = {}
        for is_shown, model in ((False, self._agent), (True, self._viewer)):
            own = [number for number, shown in enumerate(shows) if shown is is_shown]
            try:
                replies = model.reply([chats[number] for number in own]) if own else []
            except OpenMaiaError as error:
                error.answers = answers | {own[number]: reply for number, reply in error.answers.items()}
                raise
            answers |= zip(own, replies, strict=True)
        return [answers[number] for number in range(len(chats))]

    def close(self) -> None:
        for model in (self._agent, self._viewer):
            if callable(close := getattr(model, "close", None)):
                close()
