"""Reads and writes weights in half precision, with the answers of each head."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from openmaia.models.targets.meaning import OutputMeaning
from openmaia.models.targets.preprocess import Preprocess, TargetNetwork
from openmaia.offline.networks.detector import SceneDetector
from openmaia.offline.networks.residual import ResidualNetwork
from openmaia.offline.networks.transformer import VisionTransformer

NETWORK_SIDE = 96

PREPROCESS = Preprocess(
    size=(NETWORK_SIDE, NETWORK_SIDE),
    crop=1.0,
    resample=Image.Resampling.BILINEAR,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
)

ARCHITECTURES: Mapping[str, Callable[[Mapping[str, int]], nn.Module]] = MappingProxyType(
    {"residual": ResidualNetwork, "transformer": VisionTransformer, "detector": SceneDetector}
)
WEIGHTS = Path(__file__).parent / "weights"


def packaged(name: str) -> TargetNetwork:
    """Returns a network of this package for images of any size. Its classes are the answers to all heads."""
    module, answers = load_network(WEIGHTS / f"{name}.safetensors")
    return TargetNetwork(
        module=module,
        preprocess=PREPROCESS,
        labels=tuple(each for names in answers.values() for each in names),
        heads=tuple(len(names) for names in answers.values()),
        output=OutputMeaning.SOFTMAX,
    )


def save_network(module: nn.Module, architecture: str, answers: Mapping[str, Sequence[str]], path: Path) -> None:
    """Writes the weights, and the names of each head's answers by the name of the head."""
    state = {
        name: (each.half() if each.is_floating_point() else each).contiguous()
        for name, each in module.state_dict().items()
    }
    facts = {"architecture": architecture, "answers": json.dumps({name: list(each) for name, each in answers.items()})}
    save_file(state, path, metadata=facts)


def load_network(path: Path) -> tuple[nn.Module, Mapping[str, tuple[str, ...]]]:
    """Returns a network in evaluation mode and single precision, and the names of its answers."""
    architecture, answers = _facts(path)
    module = ARCHITECTURES[architecture]({name: len(each) for name, each in answers.items()})
    state = load_file(path)
    module.load_state_dict({name: each.float() if each.is_floating_point() else each for name, each in state.items()})
    # Same values to rounding, a quarter faster on a CPU.
    module = module.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return module, answers


def _facts(path: Path) -> tuple[str, Mapping[str, tuple[str, ...]]]:
    with safe_open(path, "pt") as file:
        facts: Mapping[str, str] = file.metadata()
    # The answers are kept with the weights: kinds that are added later must not rename the outputs.
    answers: Mapping[str, list[str]] = json.loads(facts["answers"])
    return facts["architecture"], {name: tuple(each) for name, each in answers.items()}
