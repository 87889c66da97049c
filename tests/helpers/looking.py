"""The responses of a target to single images, as arrays."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from openmaia.core.images import EncodedImage, Pixels, ViewBox
from openmaia.exemplars.loading import LoadedImage
from openmaia.exemplars.passes import Readable
from openmaia.exemplars.sparse import Responses, SparseResponses


def look(target: Readable, images: Sequence[Pixels]) -> list[tuple[ViewBox, dict[str, npt.NDArray[np.float32]]]]:
    """For each image, what the network sees of it and the responses of all layers."""
    views = [target.view(pixels) for pixels in images]
    return [
        (box, {layer: dense(values)[0].cpu().numpy() for layer, values in target.responses([view], [""]).items()})
        for view, box in views
    ]


def dense(responses: Responses) -> torch.Tensor:
    """All values, zeros as well."""
    if not isinstance(responses, SparseResponses):
        return responses
    found = torch.zeros(responses.images * responses.units * responses.count)
    found[responses.at] = responses.values
    return found.view(responses.images, responses.units, *responses.positions)


def loaded(target: Readable, number: int, image: EncodedImage) -> LoadedImage:
    """An image as the passes over exemplars get it."""
    view, box = target.view(image.pixels)
    kept = EncodedImage.of(image.pixels, image.sources, image.recipe)
    return LoadedImage(number=number, view=view, box=box, recipe=image.recipe, kept=kept)
