"""The tool `describe_images`."""

from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import check_list, check_texts
from openmaia.agent.tools.values import also_named, listed, texts_of, wire
from openmaia.core.errors import ToolError

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox


@also_named(image_list="images", image_title="titles", image_titles="titles")
def describe_images(self: Any, images: list[Any], titles: Any = None) -> str:
    """Asks another observer to describe each image. Returns text, one line per image, led by its title."""
    titles = [f"image {n + 1}" for n in range(len(listed(images)))] if titles is None else titles
    return self._call("describe_images", [wire(image) for image in listed(images)], texts_of(titles))


def answer(toolbox: "Toolbox", images: Any, titles: Any) -> str:
    """Asks about each image in a conversation of its own."""
    given, named = toolbox.check_images(images), check_list(titles)
    if len(given) != len(named):
        raise ToolError(f"describe_images: {len(given)} images but {len(named)} titles; give one for each")
    names = check_texts(named, "describe_images")
    seen = [toolbox.take(image, "masked") for image in given]
    replies = toolbox.ask_viewer([(toolbox.context.task.describe, image) for image in seen])
    return "\n".join(f"{name}: {reply}" for name, reply in zip(names, replies, strict=True))
