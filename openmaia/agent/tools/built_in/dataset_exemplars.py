"""The tool `dataset_exemplars`."""

from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import abbreviate
from openmaia.agent.tools.image_registry import describe_activation
from openmaia.agent.tools.values import image_of
from openmaia.core.errors import ToolError
from openmaia.core.images import compute_mask, pack_mask, seen_part
from openmaia.runs.records import Did

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from openmaia.agent.tools.api import System


_KINDS = ("top", "bottom", "random", "ladder")


def dataset_exemplars(self: Any, system: "System", kind: str = "top", as_lists: bool = False) -> Any:
    """Returns images of the dataset with the unit's activations: a list of pairs (activation, image).

    kind: "top" (highest activations), "bottom" (lowest), "random", or "ladder" (from the lowest to the highest).
    as_lists=True returns two lists instead: (activations, images).

    >>> for activation, image in tools.dataset_exemplars(system):
    ...     tools.display(activation, image)
    """
    answers = self._call("dataset_exemplars", kind, *getattr(system, "_unit", ()))
    images = [image_of(self._call, answer) for answer in answers]
    activations = [image.activation for image in images]
    return (activations, images) if as_lists else list(zip(activations, images, strict=True))


def answer(toolbox: "Toolbox", kind: Any, layer: Any = None, index: Any = None) -> list[dict[str, Any]]:
    """Raises ToolError if no exemplars of the kind are stored, or the unit may not be queried."""
    if kind not in _KINDS:
        raise ToolError(f"dataset_exemplars: kind={abbreviate(kind)}; expected one of {', '.join(_KINDS)}")
    exemplars = toolbox.subjects.exemplars(toolbox.subjects.unit(layer, index))
    if not exemplars.of_kind(kind) and exemplars.exemplars:
        stored = ", ".join(each for each in _KINDS if exemplars.of_kind(each))
        raise ToolError(f"dataset_exemplars: no images of kind={kind!r} are stored for this unit; there are: {stored}")
    return [
        toolbox.register(
            exemplar.image,
            Did.EXEMPLAR,
            prompt=kind,
            mask=pack_mask(compute_mask(exemplar.image.size, exemplar.map, exemplar.box, exemplars.threshold)),
            activation=describe_activation(exemplar.activation, exemplar.map, exemplars),
            seen=seen_part(exemplar.image.size, exemplar.box),
        )
        for exemplar in exemplars.of_kind(kind)
    ]
