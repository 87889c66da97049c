"""Scales generated and edited images to the size that is asked for."""

import numpy as np
from PIL import Image

from openmaia.core.images import Pixels


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """Scales with Lanczos resampling. An image of the size is returned unchanged."""
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS))
