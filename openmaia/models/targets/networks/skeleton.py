"""Networks without weights, of which only the layers are of interest."""

from dataclasses import replace

from openmaia.models.targets.networks.detectors import needs_values
from openmaia.models.targets.networks.efficientnet import EFFICIENTNETS, imagenet_labels
from openmaia.models.targets.networks.loading import UNTRAINED, load
from openmaia.models.targets.preprocess import TargetNetwork


def build_skeleton(name: str) -> TargetNetwork | None:
    """Returns a network of this package, torchvision or timm without weights, on the meta device, to list its layers. None if
    it computes only with values.

    Raises UsageError if the name is unknown.
    """
    network = load(name, UNTRAINED)
    if needs_values(network.module):
        return None
    labels = imagenet_labels() if name in EFFICIENTNETS else ()
    return replace(network, module=network.module.to("meta"), labels=labels)
