"""Photographs of the half that is kept for tests."""

import numpy as np

from openmaia.images import Picture, flatten
from openmaia.pictures.library import Library


def test_pictures(library: Library, count: int, size: int) -> list[Picture]:
    """At most so many, in the order of their digests, which is as good as drawn. size: of the shorter side, in pixels."""
    found = {item.digest: item for item in library.photos("test")}
    made: list[Picture] = []
    for digest in sorted(found)[:count]:
        image = flatten(found[digest].load())
        shrunk = size / min(image.size)
        if shrunk < 1:
            image = image.resize((max(round(image.width * shrunk), 1), max(round(image.height * shrunk), 1)))
        made.append(Picture.of(np.asarray(image), [digest]))
    return made
