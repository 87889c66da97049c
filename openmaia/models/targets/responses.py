"""The responses of layers, and the activations of units that follow from them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Response = npt.NDArray[np.float32]
"""A layer's output for one image: (units, h, w), or (units,) without positions."""


def rounded(value: Any) -> float:
    """Rounds to 5 significant digits: batch size and number of threads change only later ones."""
    return float(f"{float(value):.5g}")


def maxima(response: Response) -> npt.NDArray[np.float64]:
    """Returns the activations of a layer's units, rounded, for a response of shape (units, h, w) or (units,)."""
    flat = response.reshape(len(response), -1).max(axis=1)
    return np.array([rounded(value) for value in flat.tolist()])
