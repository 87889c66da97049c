"""The tool `shared`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import abbreviate
from openmaia.agent.tools.image_registry import describe_activation
from openmaia.agent.tools.values import looked_up
from openmaia.core.errors import ToolError
from openmaia.core.messages import Part
from openmaia.core.services import SharedImage
from openmaia.runs.records import Did

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationContext
    from openmaia.agent.tools.api import System
    from openmaia.agent.tools.toolbox import Toolbox

NOTE = (
    "shared.look_up: the agent could look up images of investigations that ended earlier, so the record depends on them"
)

_SAID = (
    "Agents that studied other units of this layer have drawn images, which are measured on this unit, too (tools.shared). "
    "How many there are depends on which investigations ended before you look."
)

_MOST = 100
"""Images of each kind in an answer: all of them are stored in the record."""


def shared(self: Any, system: "System", top: int = 15, bottom: int = 0, random: int = 0) -> Any:
    """Looks up images that were drawn for other units of the layer: a list of (activation of your unit, image, prompt).

    top, bottom, random: how many of those that excite the unit most, least, and of random ones, at most 100 each. They cost
    nothing.

    >>> for activation, image, prompt in tools.shared(system, top=10, random=5):
    ...     print(activation, prompt)
    """
    return looked_up(self._call, self._call("shared", top, bottom, random, *getattr(system, "_unit", ())))


def exists(context: "InvestigationContext") -> bool:
    """Returns whether the agent may look up what others drew."""
    return context.services.shared is not None


def opening(context: "InvestigationContext") -> Iterator[Part]:
    """Yields that there are such images."""
    yield _SAID


def answer(
    toolbox: "Toolbox", top: Any, bottom: Any, random: Any, layer: Any = None, index: Any = None
) -> list[dict[str, Any]]:
    """Tells the agent if there are fewer images than it asks for. Raises ToolError if the unit may not be queried."""
    unit = toolbox.subjects.unit(layer, index)
    exemplars, service = toolbox.subjects.exemplars(unit), toolbox.context.services.shared
    assert service is not None, "the toolbox has the tool only where it can answer"
    for kind, count in (("top", top), ("bottom", bottom), ("random", random)):
        if type(count) is not int or not 0 <= count <= _MOST:
            raise ToolError(f"shared: {kind}={abbreviate(count)}; expected 0 to {_MOST} images")
    ranked = service.rank(unit)
    if max(top, bottom, random) > len(ranked):
        toolbox.tell(f"shared: {len(ranked)} images were drawn for other units so far")
    chosen = _choose(ranked, top, bottom, random)
    images = service.images(unit, [each.digest for each in chosen])
    answers: list[dict[str, Any]] = []
    for each, image in zip(chosen, images, strict=True):
        # A test of this unit then has other prompts, and the agent gets another image if it draws the prompt itself.
        toolbox.derive_seed(each.prompt)
        activation = describe_activation(each.activation, None, exemplars)
        registered = toolbox.register(image, Did.SHARED, prompt=each.prompt, activation=activation)
        answers.append(registered | {"prompt": each.prompt})
    return answers


def _choose(ranked: Sequence[SharedImage], top: int, bottom: int, random: int) -> list[SharedImage]:
    # A digest has nothing to do with what an image shows.
    by_chance = sorted(ranked, key=lambda each: each.digest)
    return [*ranked[:top], *ranked[::-1][:bottom], *by_chance[:random]]
