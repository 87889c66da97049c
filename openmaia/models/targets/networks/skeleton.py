"""Networks without weights, of which only the layers are of interest."""

from dataclasses import replace

from openmaia.core.importing import import_object
from openmaia.models.targets.networks.efficientnet import EFFICIENTNETS, imagenet_labels
from openmaia.models.targets.networks.loading import LIBRARIES, UNTRAINED, load
from openmaia.models.targets.preprocess import TargetNetwork


def build_skeleton(name: str) -> TargetNetwork | None:
    """Returns a network without weights on the meta device, to list its layers. Nothing is downloaded.

    None if building it would take a download, a call of the user's function, or an object that the user passes. Raises
    UsageError if the name is unknown, or that of a function that cannot be imported.
    """
    library, colon, rest = name.partition(":")
    if colon and library not in (*LIBRARIES, "python"):
        import_object(name, "target.network")
        return None
    if library in ("hf", "python") or rest.startswith("hf-hub:"):
        return None
    network = load(name, UNTRAINED)
    labels = imagenet_labels() if name in EFFICIENTNETS else ()
    return replace(network, module=network.module.to("meta"), labels=labels)
