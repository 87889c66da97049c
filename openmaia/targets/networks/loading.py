"""From the name of a network, and perhaps a checkpoint, to a Network."""

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from openmaia.errors import UsageError
from openmaia.images import Pixels
from openmaia.targets.networks.checkpoint import load_checkpoint
from openmaia.targets.networks.efficientnet import EFFICIENTNETS, efficientnet
from openmaia.targets.preprocess import IMAGENET_MEAN, IMAGENET_STD, Network, Preprocess, Preset, published

RANDOM = "random"

LIBRARIES = ("torchvision", "timm", "hf")


def load(name: str, weights: str = "", preset: Preset = "weights") -> Network:
    """A network by name, in evaluation mode.

    name: a torchvision classifier (`resnet18`, `torchvision:vit_b_16`, `torchvision:resnet50@IMAGENET1K_V1`),
    `dino_vits8`, `clip_rn50`, `timm:NAME`, `hf:ID` (a hub's or a folder), `efficientnet_lite0` or `_lite2`, or
    `package.module:factory`. weights: "" takes the network's own, which may be downloaded; a file replaces them;
    "random" leaves the architecture at random values of seed 0. With either of these two nothing is downloaded.
    preset: the preprocessing that belongs to the weights, or that of the published MAIA code.

    No weights are ever read in a way that could run code out of a pickle: a file of the user's is safetensors or goes
    through torch.load(weights_only=True); how each library is held to the same stands in its module.
    Raises UsageError for an unknown name, missing packages, weights that cannot be had, or that do not fit.
    """
    if preset not in ("weights", "published"):
        raise UsageError(f"target.preprocess={preset!r}; expected weights or published")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _built(name, own=not weights)
    if weights not in ("", RANDOM):
        load_checkpoint(network.module, weights)
    network.module.eval().requires_grad_(False)
    if preset == "weights":
        return network
    return replace(network, preprocess=network.published or published(network.preprocess.size))


def classifier(name: str) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Pictures (height, width, 3) uint8 -> class probabilities of a network known by name."""
    network = load(name)

    def classify(pixels: Pixels) -> npt.NDArray[np.float32]:
        view, _ = network.preprocess.view(pixels)
        with torch.inference_mode():
            return network.module(network.preprocess.tensor(view)[None]).softmax(dim=1)[0].numpy()

    torch.set_num_threads(1)
    return classify


def _built(name: str, own: bool) -> Network:
    """own: with the weights that belong to the name. The libraries are imported by whoever asks for one of theirs:
    together they take seconds."""
    library, colon, rest = name.partition(":")
    if name in EFFICIENTNETS:
        return efficientnet(name, own)
    if name in ("dino_vits8", "clip_rn50") or (colon and library == "timm"):
        from openmaia.targets.networks import from_timm

        published_names = {"dino_vits8": from_timm.dino_vits8, "clip_rn50": from_timm.clip_rn50}
        return published_names[name](own) if name in published_names else from_timm.any_network(rest, own)
    if colon and library == "hf":
        from openmaia.targets.networks import from_hub

        return from_hub.any_network(rest, own)
    if colon and library != "torchvision":
        return _made(name)
    from openmaia.targets.networks import from_torchvision

    known = from_torchvision.names()
    plain = (rest if colon else name).partition("@")[0]
    if plain not in known:
        raise _unknown(name, known)
    return from_torchvision.any_network(rest if colon else name, own)


def _unknown(name: str, torchvision_names: Sequence[str]) -> UsageError:
    known = [*EFFICIENTNETS, "dino_vits8", "clip_rn50", *torchvision_names]
    near = difflib.get_close_matches(name.rpartition(":")[2].lower().replace("-", "_"), known, n=3, cutoff=0.0)
    return UsageError(
        f"the network {name!r} is not known; the nearest names are {', '.join(near)}. Expected one of "
        f"{', '.join(known[:4])}, a classifier of torchvision (resnet152), timm:NAME, hf:ID or package.module:factory"
    )


def _made(name: str) -> Network:
    """package.module:factory, where factory() returns a Network, or an nn.Module (224 px, ImageNet normalisation)."""
    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise UsageError(f"target.network={name!r} names no module; expected package.module:factory")
    try:
        factory = cast(Callable[[], Any], getattr(importlib.import_module(module_name), attribute))
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"target.network={name!r} cannot be imported: {error}; expected package.module:factory, or a name after "
            f"one of {', '.join(f'{library}:' for library in LIBRARIES)}"
        ) from error
    if not callable(factory):
        raise UsageError(f"target.network={name!r} is no function; expected package.module:factory")
    made = factory()
    if isinstance(made, Network):
        return made
    if isinstance(made, torch.nn.Module):
        default = Preprocess(
            size=(224, 224), crop=0.875, resample=Image.Resampling.BILINEAR, mean=IMAGENET_MEAN, std=IMAGENET_STD
        )
        return Network(module=made, preprocess=default)
    raise UsageError(f"target.network={name!r} returned {type(made).__name__}; expected an nn.Module or a Network")
