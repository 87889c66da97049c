"""A backbone that takes no images, and its viewer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, ViewerConfig
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
        answers = {
            is_shown: iter(model.reply([chat for chat, shown in zip(chats, shows, strict=True) if shown is is_shown]))
            for is_shown, model in ((False, self._agent), (True, self._viewer))
            if is_shown in shows
        }
        return [next(answers[is_shown]) for is_shown in shows]

    def close(self) -> None:
        for model in (self._agent, self._viewer):
            if callable(close := getattr(model, "close", None)):
                close()
