"""Networks that learned drawn scenes, with packaged weights.

As a target: `target.network=openmaia.offline.networks:scenes_resnet`.
"""

from openmaia.models.targets.preprocess import TargetNetwork


def scenes_resnet() -> TargetNetwork:
    """Returns the residual network for kinds and places."""
    from openmaia.offline.networks.packaged import packaged

    return packaged("scenes_resnet")
