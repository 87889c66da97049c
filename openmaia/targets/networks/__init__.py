"""Networks by name: from torchvision, timm, Hugging Face and packages, or a factory of the user's own."""

from openmaia.targets.networks.efficientnet import imagenet_labels
from openmaia.targets.networks.loading import classifier, load

__all__ = ["classifier", "imagenet_labels", "load"]
