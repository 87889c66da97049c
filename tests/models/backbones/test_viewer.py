"""A backbone that takes no images, with a viewer beside it."""

from collections.abc import Sequence

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Chat, Reply, user
from openmaia.models.backbones.viewer import BackboneWithViewer

IMAGE = EncodedImage.of(np.zeros((8, 8, 3), np.uint8))


class Named:
    """Answers with its name and the first text of each chat."""

    def __init__(self, name: str):
        self.name, self.calls = name, 0

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.calls += 1
        return [Reply(text=f"{self.name}: {chat.messages[0].text}") for chat in chats]


def chat(text: str, *images: EncodedImage) -> Chat:
    return Chat(conversation="", messages=(user(text, *images),), seed=0, max_tokens=5)


def test_chats_with_images_go_to_the_viewer():
    agent, viewer = Named("agent"), Named("viewer")
    replies = BackboneWithViewer(agent, viewer).reply([chat("a"), chat("b", IMAGE), chat("c"), chat("d", IMAGE)])
    assert [reply.text for reply in replies] == ["agent: a", "viewer: b", "agent: c", "viewer: d"]
    assert (agent.calls, viewer.calls) == (1, 1)


def test_model_that_is_not_asked_is_not_called():
    agent, viewer = Named("agent"), Named("viewer")
    BackboneWithViewer(agent, viewer).reply([chat("a")])
    assert (agent.calls, viewer.calls) == (1, 0)
