"""A backbone that takes no images, and its viewer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, ViewerConfig
from openmaia.core.errors import OpenMaiaError
from openmaia.core.messages import Chat, Reply
from openmaia.core.money import bill_of
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
        answers: dict[bool, list[Reply]] = {}
        for is_shown, model in ((False, self._agent), (True, self._viewer)):
            try:
                own = [chat for chat, shown in zip(chats, shows, strict=True) if shown is is_shown]
                answers[is_shown] = model.reply(own) if own else []
            except OpenMaiaError as error:
                error.bill += bill_of(answers.get(False, ()))
                raise
        ordered = {is_shown: iter(replies) for is_shown, replies in answers.items()}
        return [next(ordered[is_shown]) for is_shown in shows]

    def close(self) -> None:
        for model in (self._agent, self._viewer):
            if callable(close := getattr(model, "close", None)):
                close()
