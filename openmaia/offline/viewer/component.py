"""The viewer `scenes`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, ViewerConfig
from openmaia.core.images import Pixels
from openmaia.core.messages import Chat, Reply

# What sees is imported when it is needed, because a config names this module.


@dataclass
class SceneViewerConfig(ViewerConfig):
    """A small network that learned drawn scenes says in a sentence what they show."""


class SceneViewer(Component):
    """Describes drawn scenes in the words of their grammar. In other images it sees scenes, too."""

    Config: ClassVar = SceneViewerConfig

    def __init__(self, config: Any = None):
        from openmaia.offline.viewer.seeing import SceneEyes

        self._eyes = SceneEyes()

    @staticmethod
    def title(config: Any) -> str:
        return "a network that learned drawn scenes"

    @staticmethod
    def remark(config: Any) -> str:
        return "no language model"

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        """Describes the images of each chat.

        A chat may consist of two images: an image, and a copy of it that is darkened where a unit does not respond.
        Then the part that is not darkened is described, too.
        """
        return [Reply(text=self._describe([i.pixels for m in chat.messages for i in m.images])) for chat in chats]

    def _describe(self, images: Sequence[Pixels]) -> str:
        from openmaia.offline.experimenter.eyes import is_masked

        if len(images) == 2 and is_masked(*images):
            part = self._eyes.see_part(*images)
            where = (
                f"where the unit responds: {part.sentence}"
                if part.is_small
                else "the unit responds to no small part of it"
            )
            return f"{part.whole.sentence}; {where}."
        return f"{'; '.join(self._eyes.see(each).sentence for each in images)}."
