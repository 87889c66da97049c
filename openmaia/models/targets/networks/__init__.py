"""Loads networks by name from torchvision, timm, Hugging Face and packages, or from a function of the user."""

from openmaia.models.targets.networks.efficientnet import imagenet_labels
from openmaia.models.targets.networks.loading import classifier, load

__all__ = ["classifier", "imagenet_labels", "load"]
