"""Features of a dictionary, which are studied as units of a layer of their own.

A dictionary is the encoder of a sparse autoencoder, applied to the channels at each position of a layer. The files of
libraries are read by what is in `dictionaries/`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from openmaia.core.units import FEATURES
from openmaia.exemplars.sparse import SparseResponses

Normalisation = Literal["none", "layer_norm", "constant_norm_rescale"]
"""What is done to the channels at a position first, by SAELens's names."""

# Values of features that are computed at a time, in double precision: 128 MiB.
_CELLS = 2**24

# Columns of which the maximum is taken first, where the k largest are looked for.
_GROUP = 16

# Single precision is used where at most one in so many features is looked for.
_MANY = 256

_SPARE = 8  # candidates beyond k, where the k largest are looked for in single precision

_TRIED = 16  # positions on which it is seen whether few enough features are active for single precision

_EPSILON = 1e-5  # of SAELens's layer_norm, added to the standard deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary:
    """The dictionary of one layer, on the target's device, and the computation of its features.

    With x the normalised channels at a position and v = encoder · x + bias, a feature is v where v is above the threshold
    and, if k is given, among the k largest there; elsewhere it is 0. Tensors are float64 unless they say otherwise:
    converting the encoder at each pass takes as long as the product.
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
    threshold: torch.Tensor
    """Shape (features,), 0 or more: 0 for a ReLU."""
    decoder: torch.Tensor
    """Shape (features, channels): what each feature, of value 1, adds to the normalised channels. float32, on the CPU."""
    normalisation: Normalisation = "none"
    k: int = 0
    """Only the k largest features at a position are not 0. 0: all may be."""
    rough: torch.Tensor | None = field(init=False, repr=False, default=None)
    """The encoder in single precision, in which a CPU finds candidates in less time. None: not used."""
    longest: float = field(init=False, repr=False, default=0.0)
    """With `rough`, the largest norm of a feature in the encoder."""

    def __post_init__(self) -> None:
        # With fewer features, reading the rows of candidates takes longer than the product in double precision.
        if self.encoder.device.type == "cpu" and len(self.encoder) > _MANY * (self.k + _SPARE):
            object.__setattr__(self, "rough", self.encoder.float())
            object.__setattr__(self, "longest", float(self.encoder.norm(dim=1).max()))

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
        return replace(self, **{name: each.to(device) for name, each in self._tensors().items()})

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Returns named tensors for the target's digest."""
        # What is no tensor is in the names, so that the digest depends on it, too.
        kind = f"{self.name}.{self.source}.{self.normalisation}.{self.k}"
        return [(f"{kind}.{name}", each.cpu()) for name, each in self._tensors().items()]

    def unit(self, response: torch.Tensor, index: int) -> torch.Tensor:
        """Returns a feature's response, shape (h, w) or (), to an output of shape (channels, h, w) or (channels,), on the
        dictionary's device."""
        # Whether it is among the k largest depends on all.
        rows = slice(None) if self.k else slice(index, index + 1)
        return self._encode(response[None], rows, _CELLS).chosen([0], [index if self.k else 0])[0]

    def maxima(self, response: torch.Tensor) -> torch.Tensor:
        """Returns the activations of all features, shape (features,), on one output as for `unit`."""
        return self.all(response[None]).maxima()[0]

    def all(self, responses: torch.Tensor, cells: int = _CELLS) -> SparseResponses:
        """Returns the responses of all features to outputs of shape (images, channels, …).

        Args:
            cells: Largest number of values (positions x features) that are computed at once, in 8 bytes each.
        """
        return self._encode(responses, slice(None), cells)

    def _largest(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the k largest values at each position and their features, both of shape (positions, k), for normalised
        channels of shape (positions, channels)."""
        if self.rough is None:
            return _largest(torch.addmm(self.bias, given, self.encoder.T), self.k)
        near, candidates = _largest(torch.addmm(self.bias.float(), given.float(), self.rough.T), self.k + _SPARE)
        exact = torch.einsum("pfc,pc->pf", self.encoder[candidates], given) + self.bias[candidates]
        largest, place = exact.topk(self.k)
        feature = candidates.gather(1, place)
        # Also where one is not a number.
        unsure = torch.nonzero(~(near[:, self.k - 1] - near[:, -1] > 2 * self._error(given)))[:, 0]
        if len(unsure):
            again = torch.addmm(self.bias, given[unsure], self.encoder.T)
            largest[unsure], feature[unsure] = _largest(again, self.k)
        return largest, feature

    def _active(self, given: torch.Tensor, cells: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns rows, features and values of what is above the thresholds, for normalised channels of shape
        (positions, channels). `cells` as in `all`."""
        candidates = self._candidates(given)
        if candidates is None:
            return _active(torch.addmm(self.bias, given, self.encoder.T), self.threshold)
        row, feature = candidates
        step = max(1, cells // (2 * given.shape[1]))  # a candidate takes a row of the encoder and one of the channels
        exact = [
            torch.einsum("vc,vc->v", self.encoder[features], given[rows])
            for rows, features in zip(row.split(step), feature.split(step), strict=True)
        ]
        values = torch.cat(exact) + self.bias[feature]
        is_active = ~(values <= self.threshold[feature])
        return row[is_active], feature[is_active], values[is_active]

    def _candidates(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Returns rows and features of all values that may be above the thresholds, found in single precision; None where
        these are not known to be few."""
        if self.rough is None:
            return None
        bias, lowered = self.bias.float(), (self.threshold - self._error(given).max()).float()
        found = None
        for some in (given[:_TRIED], given):
            row, feature, _ = _active(torch.addmm(bias, some.float(), self.rough.T), lowered)
            if len(row) * _MANY > len(some) * len(self.encoder):
                return None
            found = row, feature
        return found

    def _error(self, given: torch.Tensor) -> torch.Tensor:
        """Returns by how much a value in single precision may differ from that in double, shape (positions,), with that of
        a threshold (Higham 2002, Accuracy and Stability of Numerical Algorithms, 3.1)."""
        size = given.norm(dim=1) * self.longest + self.bias.abs().max() + self.threshold.max()
        return (given.shape[1] + 5) * 2.0**-24 * size

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {"encoder": self.encoder, "bias": self.bias, "threshold": self.threshold}

    def _encode(self, responses: torch.Tensor, rows: slice, cells: int) -> SparseResponses:
        images, channels = responses.shape[:2]
        count = math.prod(responses.shape[2:])
        positions = responses.reshape(images, channels, count).mT.reshape(-1, channels)
        encoder, bias, threshold = self.encoder[rows], self.bias[rows], self.threshold[rows]
        ats: list[torch.Tensor] = []
        found: list[torch.Tensor] = []
        # The rows of candidates are in double precision, too.
        gathered = (self.k + _SPARE) * channels if self.k and self.rough is not None else 0
        step = max(1, cells // max(len(encoder), gathered))
        for first in range(0, len(positions), step):
            # In double precision, for the reason that directions are.
            given = _normalised(positions[first : first + step].to(encoder), self.normalisation)
            if self.k:
                row, feature, values = _above(*self._largest(given), threshold)
            elif len(encoder) == self.units:
                row, feature, values = self._active(given, cells)
            else:
                row, feature, values = _active(torch.addmm(bias, given, encoder.T), threshold)
            row += first
            ats.append((row // count * len(encoder) + feature) * count + row % count)
            found.append(values)
        return SparseResponses(
            images=images,
            units=len(encoder),
            positions=tuple(responses.shape[2:]),
            at=torch.cat(ats),
            values=torch.cat(found).float(),
        )


def _active(values: torch.Tensor, threshold: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns rows, columns and values of what is above the thresholds, for values of shape (positions, features)."""
    # Here and below written so that NaN counts as active: units with one are reported.
    if values.device.type == "cpu":
        # NumPy compares in two thirds of the time, and passes over what is false in a third.
        silent = np.less_equal(values.numpy(), threshold.numpy())
        at = torch.from_numpy(np.flatnonzero(np.logical_not(silent, out=silent)))
    else:
        at = torch.nonzero(torch.le(values, threshold).logical_not_().flatten())[:, 0]
    columns = values.shape[1]
    return at // columns, at % columns, values.flatten()[at]


def _above(
    largest: torch.Tensor, feature: torch.Tensor, threshold: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Likewise for the largest values and their columns, both of shape (positions, k)."""
    row, rank = torch.nonzero(~(largest <= threshold[feature]), as_tuple=True)
    return row, feature[row, rank], largest[row, rank]


def _largest(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the k largest values of each row of (rows, columns) and their columns, both of shape (rows, k)."""
    columns = values.shape[1]
    count = columns // _GROUP
    if count < 4 * k:
        return values.topk(k)
    # They are in the k groups of columns whose maxima are largest: a maximum takes a fraction of the time of a search, and
    # least over columns that lie apart.
    whole = count * _GROUP
    groups = values[:, :whole].unflatten(1, (_GROUP, count)).amax(dim=1).topk(k, sorted=False).indices
    at = (groups[:, :, None] + torch.arange(0, whole, count, device=values.device)).flatten(1)
    rest = torch.arange(whole, columns, device=values.device).expand(len(values), -1)
    at = torch.cat([at, rest], dim=1)
    largest, place = values.gather(1, at).topk(k)
    return largest, at.gather(1, place)


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
