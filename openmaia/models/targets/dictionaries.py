"""Features of a dictionary, which are studied as units of a layer of their own.

A dictionary is the encoder of a sparse autoencoder, applied to the channels at each position of a layer. What reads the
files of libraries is in `dictionary_files.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch

FEATURES = "/features"
"""The units of `layer4/features` are the features of the dictionary of `layer4`."""

Normalisation = Literal["none", "layer_norm", "constant_norm_rescale"]
"""What is done to the channels at a position first, by SAELens's names."""

# Values of features that are computed at a time, in double precision: 128 MiB.
_CELLS = 2**24

_EPSILON = 1e-5  # of SAELens's layer_norm, added to the standard deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary:
    """The dictionary of one layer, on the target's device, and the computation of its features.

    With x the normalised channels at a position and h = encoder · (x - offset), a feature is relu(scale · h + bias), or 0
    where `threshold`, `gate` or `k` say so. Tensors are float64 unless they say otherwise: converting the encoder at each
    pass takes as long as the product.
    """

    layer: str
    source: str
    """Key of the responses that are encoded: the layer, or its tokens."""
    description: str
    """For the user, such as `topk of SAELens, k=32`."""
    encoder: torch.Tensor
    """Shape (features, channels)."""
    bias: torch.Tensor
    """Shape (features,)."""
    offset: torch.Tensor
    """Shape (channels,)."""
    decoder: torch.Tensor
    """Shape (features, channels): what each feature, of value 1, adds to the normalised channels. float32, on the CPU."""
    normalisation: Normalisation = "none"
    scale: torch.Tensor | None = None
    """Shape (features,). None: 1."""
    gate: torch.Tensor | None = None
    """Shape (features,): a feature is 0 unless h + gate is positive (gated autoencoders). None: no gate."""
    threshold: torch.Tensor | None = None
    """Shape (features,): a feature is 0 unless it is above it (JumpReLU). None: no threshold."""
    k: int = 0
    """Only the k largest features at a position are not 0. 0: all may be."""

    @property
    def name(self) -> str:
        """Name of the layer whose units they are, such as `layer4/features`."""
        return self.layer + FEATURES

    @property
    def units(self) -> int:
        """The number of features."""
        return len(self.encoder)

    def on(self, device: torch.device) -> "Dictionary":
        """Returns the dictionary with what encoding needs on a device."""
        moved = {name: each.to(device) for name, each in self._tensors().items()}
        return replace(self, **moved)

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Returns named tensors for the target's digest."""
        # What is no tensor is in the names, so that the digest depends on it, too.
        kind = f"{self.name}.{self.source}.{self.normalisation}.{self.k}"
        return [(f"{kind}.{name}", each.cpu()) for name, each in self._tensors().items()]

    def unit(self, response: torch.Tensor, index: int) -> torch.Tensor:
        """Returns a feature's response, shape (h, w) or (), to an output of shape (channels, h, w) or (channels,), on the
        dictionary's device."""
        channels = response[None].to(self.encoder.device)
        if self.k:  # whether it is among the k largest depends on all
            return self.all(channels)[0, index]
        return self._encode(channels, slice(index, index + 1))[0, 0]

    def all(self, responses: torch.Tensor, cells: int = _CELLS) -> torch.Tensor:
        """Returns responses, shape (images, features, …), to outputs of shape (images, channels, …), on their device.

        Args:
            cells: Largest number of values (positions × features) that are computed at once.
        """
        return self._encode(responses, slice(None), cells).to(responses.device)

    def _tensors(self) -> dict[str, torch.Tensor]:
        named = {
            "encoder": self.encoder,
            "bias": self.bias,
            "offset": self.offset,
            "scale": self.scale,
            "gate": self.gate,
            "threshold": self.threshold,
        }
        return {name: each for name, each in named.items() if each is not None}

    def _encode(self, responses: torch.Tensor, rows: slice, cells: int = _CELLS) -> torch.Tensor:
        images, channels = responses.shape[:2]
        positions = responses.reshape(images, channels, -1).mT.reshape(-1, channels)
        encoder = self.encoder[rows]
        step = max(1, cells // len(encoder))
        values = torch.cat([self._features(each.to(encoder), encoder, rows) for each in positions.split(step)])
        by_image = values.reshape(images, -1, len(encoder)).mT.contiguous()
        return by_image.reshape(images, len(encoder), *responses.shape[2:])

    def _features(self, channels: torch.Tensor, encoder: torch.Tensor, rows: slice) -> torch.Tensor:
        """float32, shape (positions, features), for channels of shape (positions, channels)."""
        # In double precision, for the reason that directions are.
        projected = (_normalised(channels, self.normalisation) - self.offset) @ encoder.T
        scaled = projected if self.scale is None else projected * self.scale[rows]
        values = (scaled + self.bias[rows]).clamp_(min=0)
        if self.gate is not None:
            values *= projected + self.gate[rows] > 0
        if self.threshold is not None:
            values *= values > self.threshold[rows]
        if self.k:
            largest, where = values.topk(self.k)
            values = torch.zeros_like(values).scatter_(1, where, largest)
        return values.float()


def _normalised(channels: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """Normalises over the channels as SAELens does. Shape (positions, channels)."""
    if normalisation == "layer_norm":
        centred = channels - channels.mean(dim=1, keepdim=True)
        return centred / (centred.std(dim=1, keepdim=True) + _EPSILON)
    if normalisation == "constant_norm_rescale":
        # A position where all channels are 0 stays so. SAELens divides by zero there.
        norm = channels.norm(dim=1, keepdim=True).clamp(min=torch.finfo(channels.dtype).tiny)
        return channels * (channels.shape[1] ** 0.5 / norm)
    return channels


def spread(channels: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """Returns what 1 of the normalised channels is in channels, shape (images, 1, …), of channels (images, channels, …)."""
    if normalisation == "layer_norm":
        return channels.std(dim=1, keepdim=True) + _EPSILON
    if normalisation == "constant_norm_rescale":
        return channels.norm(dim=1, keepdim=True) / channels.shape[1] ** 0.5
    return torch.ones_like(channels[:, :1])
