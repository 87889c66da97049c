"""The tool `summarize_images`."""

from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.values import also_named, listed, wire
from openmaia.core.errors import ToolError

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox


@also_named(image_list="images")
def summarize_images(self: Any, images: list[Any]) -> str:
    """Asks another observer what the images have in common. Returns text."""
    return self._call("summarize_images", [wire(image) for image in listed(images)])


def answer(toolbox: "Toolbox", images: Any) -> str:
    """Asks about all images in one conversation."""
    given = toolbox.check_images(images)
    if not given:
        raise ToolError("summarize_images: an empty list; give at least one image")
    seen = [toolbox.take(image, "masked") for image in given]
    return toolbox.ask_viewer([(toolbox.context.task.summarize, *seen)])[0]
