"""Networks that learned drawn scenes, with packaged weights.

As a target: `target.network=openmaia.offline.networks:scenes_resnet`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmaia.models.targets.preprocess import TargetNetwork


def scenes_resnet() -> "TargetNetwork":
    """Returns a residual network for kinds and places."""
    return _packaged("scenes_resnet")


def scenes_shortcut() -> "TargetNetwork":
    """Returns the same network with a planted shortcut: boats and dusk were never apart in training."""
    return _packaged("scenes_shortcut")


def scenes_mild() -> "TargetNetwork":
    """Returns the same network with a milder shortcut: 88 % of the boats were at dusk in training, and few other scenes."""
    return _packaged("scenes_mild")


def scenes_vit() -> "TargetNetwork":
    """Returns a small vision transformer for kinds and places."""
    return _packaged("scenes_vit")


def _packaged(name: str) -> "TargetNetwork":
    # Imported when needed, because the names of networks are looked up early.
    from openmaia.offline.networks.packaged import packaged

    return packaged(name)
