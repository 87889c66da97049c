"""The tool `bank`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import abbreviate
from openmaia.agent.tools.image_registry import describe_activation
from openmaia.agent.tools.values import looked_up
from openmaia.core.errors import ToolError
from openmaia.core.images import compute_mask, pack_mask, seen_part
from openmaia.core.messages import Part
from openmaia.core.services import Bank
from openmaia.runs.records import Did

if TYPE_CHECKING:
    from openmaia.agent.context import InvestigationContext
    from openmaia.agent.tools.api import System
    from openmaia.agent.tools.toolbox import Toolbox

_IMAGES = (
    "Images that were made before you began, the same for all units, are measured already (tools.bank). These excite this "
    "unit most, with what each shows and its activation. They suggest hypotheses; test these with images of your own."
)

_WORDS = (
    "Words of what all those images show, by how well they tell the images that excite this unit from the others. Take them as "
    "your first hypotheses, and test them like all others:"
)


def bank(self: Any, system: "System", top: int = 15, bottom: int = 0, random: int = 0) -> Any:
    """Looks up images that were drawn and measured before, the same for all units: a list of (activation, image, prompt).

    top, bottom, random: how many of those that excite the unit most, least, and of random ones. They cost nothing.

    >>> for activation, image, prompt in tools.bank(system, top=10, random=5):
    ...     print(activation, prompt)
    """
    return looked_up(self._call, self._call("bank", top, bottom, random, *getattr(system, "_unit", ())))


def exists(context: "InvestigationContext") -> bool:
    """Returns whether the config has a bank."""
    return context.services.bank is not None


def opening(context: "InvestigationContext") -> Iterator[Part]:
    """Yields the images that excite the unit most, each after what it was drawn from, and hypotheses; the best first."""
    service = _bank(context)
    if context.options.shown:
        yield from _images(service, context)
    if words := service.words(context.unit, context.options.words) if context.options.words else ():
        yield _WORDS
        for number, word in enumerate(words, start=1):
            yield f"{number}. {word.text} (bank, AUC {word.auc:.2f} on {word.images} of {word.of} images)"


def answer(
    toolbox: "Toolbox", top: Any, bottom: Any, random: Any, layer: Any = None, index: Any = None
) -> list[dict[str, Any]]:
    """Tells the agent if fewer images are kept than it asks for. Raises ToolError if the unit may not be queried."""
    unit = toolbox.subjects.unit(layer, index)
    exemplars, service = toolbox.subjects.exemplars(unit), _bank(toolbox.context)
    wanted = {"top": top, "bottom": bottom, "random": random}
    kept = {kind: [each for each in service.read(unit) if each.exemplar.kind == kind] for kind in wanted}
    for kind, count in wanted.items():
        if type(count) is not int or count < 0:
            raise ToolError(f"bank: {kind}={abbreviate(count)}; expected a number of images")
        if count > len(kept[kind]):
            toolbox.tell(f"bank: {kind}={count}, and {len(kept[kind])} are kept for each unit: these are returned")
    answers: list[dict[str, Any]] = []
    for image in (each for kind, count in wanted.items() for each in kept[kind][:count]):
        one = image.exemplar
        registered = toolbox.register(
            one.image,
            Did.BANK,
            prompt=image.prompt,
            mask=pack_mask(compute_mask(one.image.size, one.map, one.box, exemplars.threshold)),
            activation=describe_activation(one.activation, one.map, exemplars),
            seen=seen_part(one.image.size, one.box),
        )
        answers.append(registered | {"prompt": image.prompt})
    return answers


def _bank(context: "InvestigationContext") -> Bank:
    assert context.services.bank is not None, "investigations without a bank have no such tool"
    return context.services.bank


def _images(service: Bank, context: "InvestigationContext") -> Iterator[Part]:
    found = [each for each in service.read(context.unit) if each.exemplar.kind == "top"][: context.options.shown]
    statistics = context.services.exemplars.read(context.unit)
    yield _IMAGES
    for rank, each in enumerate(found, start=1):
        value = each.exemplar.activation
        percentile = statistics.percentile(value)
        yield f"{rank}. {each.prompt}: {value:g}" + ("" if percentile is None else f" (percentile {percentile:.1f})")
        if context.options.sees_images:
            yield each.exemplar.image
