"""Makes of an image what a network measures: images of a dataset, of a bank, and of a user are treated alike."""

import numpy as np
from PIL import Image

from openmaia.core.errors import UsageError
from openmaia.core.images import MAX_PIXELS, EncodedImage, Pixels, flatten
from openmaia.datasets.reading import UnusableImage, read

LONGEST_SIDE = 640
"""Longest side in pixels to which images are shrunk for the network. No supported network has larger inputs."""


def shrink(image: Image.Image) -> Pixels:
    """Returns the RGB pixels of an image in the size in which it is measured. The image is shrunk in place."""
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return np.asarray(flatten(image))


def read_picture(data: bytes, name: str, most: int = MAX_PIXELS) -> EncodedImage:
    """Decodes a picture of a user as an image of a dataset is decoded.

    Args:
        name: For messages.
        most: The largest number of pixels.

    Raises:
        UsageError: It is no image, damaged, too large or too small.
    """
    try:
        return EncodedImage.of(shrink(read(data, name, most=most).image))
    except UnusableImage as error:
        raise UsageError(str(error)) from error
