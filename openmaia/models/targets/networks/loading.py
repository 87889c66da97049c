"""Loads target networks by name, with optional checkpoints."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from openmaia.core.errors import UsageError
from openmaia.core.images import Pixels
from openmaia.core.importing import import_object
from openmaia.models.targets.network import LIBRARIES, UNTRAINED
from openmaia.models.targets.networks.checkpoint import load_checkpoint
from openmaia.models.targets.networks.efficientnet import EFFICIENTNETS, load_efficientnet
from openmaia.models.targets.networks.untrained import forget
from openmaia.models.targets.preprocess import (
    GivenPreprocess,
    Preprocess,
    PreprocessPreset,
    TargetNetwork,
    published,
)
from openmaia.models.targets.state import check_state

NOTHING_GIVEN = GivenPreprocess()


def load(
    name: str, weights: str = "", preset: PreprocessPreset = "weights", given: GivenPreprocess = NOTHING_GIVEN
) -> TargetNetwork:
    """Loads a network in evaluation mode. Code in a weight file is never run.

    Args:
        name: A classifier or detector of torchvision (`resnet18`, `torchvision:vit_b_16`, `resnet50@IMAGENET1K_V1`),
            `dino_vits8`, `clip_rn50`, `timm:NAME`, `hf:ID` (a hub id or a folder), `efficientnet_lite0` to `_lite2`, or
            `package.module:factory` (a function of the user that returns the network).
        weights: Empty for the network's own weights, which may be downloaded; the path of a checkpoint; or UNTRAINED for
            random weights with seed 0. For the last two, nothing is downloaded.
        given: Replaces what the network or the preset says.

    Raises:
        UsageError: The name is unknown, a package is missing, the weights cannot be loaded or do not match, the network
            cannot be measured (see `check_state`), or nothing says how images have to be preprocessed.
    """
    if preset not in ("weights", "published"):
        raise UsageError(f"target.preprocess={preset!r}; expected weights or published")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _network(name, not weights, preset, given)
        if weights == UNTRAINED and is_factory(name):
            torch.manual_seed(0)
            forget(network.module)
    if weights not in ("", UNTRAINED):
        load_checkpoint(network.module, weights)
    return prepare(network, name, preset, given)


def prepare(network: TargetNetwork, name: str, preset: PreprocessPreset, given: GivenPreprocess) -> TargetNetwork:
    """Puts a network into evaluation mode, and returns it with the preprocessing that the user chose. Raises UsageError as
    `load`."""
    check_state(network.module)
    network.module.eval().requires_grad_(False)
    if preset == "published":
        network = replace(network, preprocess=network.published or published(network.preprocess.size))
    return changed(network, given, f"target.network={name!r}")


def is_factory(name: str) -> bool:
    """Returns whether a name is `package.module:factory`."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library not in LIBRARIES


def changed(network: TargetNetwork, given: GivenPreprocess, what: str) -> TargetNetwork:
    """Returns a network in which given values replace those of its preprocessing. Raises UsageError if that is a
    function, which has none. `what` is the network's name in messages."""
    if given == NOTHING_GIVEN:
        return network
    if not isinstance(network.preprocess, Preprocess):
        raise UsageError(
            f"{what} preprocesses images by a function ({network.preprocess.description}), which target.size, target.crop, "
            "target.mean and target.std cannot change; leave them out"
        )
    return replace(network, preprocess=given.changed(network.preprocess))


def classifier(name: str) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Returns a function from an image, uint8 of shape (height, width, 3), to the probabilities of the classes, on the
    CPU. Sets PyTorch's number of threads in this process to 1."""
    network = load(name)
    # Same values, a quarter faster on a CPU.
    module = network.module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def classify(pixels: Pixels) -> npt.NDArray[np.float32]:
        view, _ = network.preprocess.view(pixels)
        with torch.inference_mode():
            return module(network.preprocess.tensor(view)[None]).softmax(dim=1)[0].numpy()

    torch.set_num_threads(1)
    return classify


def _network(name: str, pretrained: bool, preset: PreprocessPreset, given: GivenPreprocess) -> TargetNetwork:
    # Libraries are imported on demand, because their imports take seconds.
    library, colon, rest = name.partition(":")
    if name in EFFICIENTNETS:
        return load_efficientnet(name, pretrained)
    if name in ("dino_vits8", "clip_rn50") or (colon and library == "timm"):
        from openmaia.models.targets.networks import from_timm

        published_names = {"dino_vits8": from_timm.dino_vits8, "clip_rn50": from_timm.clip_rn50}
        if name in published_names:
            return published_names[name](pretrained)
        return from_timm.load(rest, pretrained)
    if colon and library == "hf":
        from openmaia.models.targets.networks import from_hub

        return from_hub.load(rest, pretrained)
    if is_factory(name):
        return _from_factory(name, preset, given)
    from openmaia.models.targets.networks import from_torchvision, torchvision_detectors

    known = from_torchvision.names(), torchvision_detectors.names()
    model = rest if colon else name
    for library_part, own in zip((from_torchvision, torchvision_detectors), known, strict=True):
        if model.partition("@")[0] in own:
            return library_part.load(model, pretrained)
    raise _unknown(name, [*known[0], *known[1]])


def _unknown(name: str, torchvision_names: Sequence[str]) -> UsageError:
    known = [*EFFICIENTNETS, "dino_vits8", "clip_rn50", *torchvision_names]
    near = difflib.get_close_matches(name.rpartition(":")[2].lower().replace("-", "_"), known, n=3, cutoff=0.0)
    return UsageError(
        f"the network {name!r} is not known; the nearest names are {', '.join(near)}. Expected one of "
        f"{', '.join(known[:4])}, a classifier or detector of torchvision (resnet152), timm:NAME, hf:ID or package.module:factory"
    )


def _from_factory(name: str, preset: PreprocessPreset, given: GivenPreprocess) -> TargetNetwork:
    factory = import_object(
        name, "target.network", f"; or a name after one of {', '.join(f'{library}:' for library in LIBRARIES)}"
    )
    if not callable(factory):
        raise UsageError(f"target.network={name!r} is no function; expected package.module:function")
    made = factory()
    if isinstance(made, TargetNetwork):
        return made
    if not isinstance(made, torch.nn.Module):
        raise UsageError(
            f"target.network={name!r} returned {type(made).__name__}; expected an nn.Module or a TargetNetwork"
        )
    if preset == "published" and given.size:
        return TargetNetwork(module=made, preprocess=published((given.size, given.size)))
    return TargetNetwork(module=made, preprocess=given.whole(f"target.network={name!r}"))
