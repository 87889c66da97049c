"""What the output of a network means."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from openmaia.core.errors import UsageError


class OutputMeaning(StrEnum):
    """How the numbers in the output of a network are read."""

    SOFTMAX = "softmax"
    """Logits of classes that exclude each other, or their log-probabilities. Activations are the probabilities."""
    SIGMOID = "sigmoid"
    """One logit for each output. Activations are the probabilities."""
    PROBABILITIES = "probabilities"
    """Probabilities, which are the activations."""
    VALUES = "values"
    """Other numbers, which are the activations: of a regression, or an embedding."""


# Behind these an output still means what it meant before.
PASSING = (
    *(nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.Flatten, nn.Unflatten),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AvgPool1d, nn.AvgPool2d),
)

NN = "torch.nn.modules"

# Their output may be the logits of classes. A network that ends with another module is no classifier.
_LOGITS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Bilinear)

# Of the sum of a row that consists of probabilities. Half precision has 3 digits.
_TOLERANCE = 1e-3

# Probabilities below it count as this one, whose logarithm is finite.
_LEAST = 1e-30


def understand(outputs: torch.Tensor, last: Sequence[tuple[nn.Module, torch.Tensor]]) -> tuple[OutputMeaning, str]:
    """Finds out what the output of a network means, and why, in words.

    Args:
        outputs: For some different images, shape (images, units).
        last: The last modules without children that were called, apart from those in PASSING, and their outputs for the
            same images. The last one is first.

    Raises:
        UsageError: Neither the values nor the last module tell it.
    """
    units, values = outputs.shape[1], outputs.double()
    if units > 1 and _sum_to_one(values):
        return OutputMeaning.PROBABILITIES, "they sum to 1"
    if units > 1 and _sum_to_one(values.exp()):
        return OutputMeaning.SOFTMAX, "they are log-probabilities"
    module, logits = _source(values, last)
    kind = type(module).__name__
    if isinstance(module, (nn.Sigmoid, nn.Hardsigmoid)) or (logits is not None and _equal(logits.sigmoid(), values)):
        return OutputMeaning.PROBABILITIES, "they come from a sigmoid"
    if units == 1:
        return OutputMeaning.VALUES, "a single output may be a logit as well as the value of a regression"
    if bool(((values >= 0) & (values <= 1)).all()):
        return OutputMeaning.VALUES, "they lie between 0 and 1, and do not sum to 1"
    if bool(((values.norm(dim=1) - 1).abs() < _TOLERANCE).all()):
        return OutputMeaning.VALUES, "they are vectors of length 1"
    if not isinstance(module, _LOGITS) and any(each.__module__.startswith(NN) for each in type(module).__mro__[:-2]):
        return OutputMeaning.VALUES, f"the network ends with {kind}"
    if isinstance(module, _LOGITS) and logits is not None and _proportional(logits, values):
        why = f"the network ends with {kind}, and classes are taken to exclude each other (if not, set target.output=sigmoid)"
        return OutputMeaning.SOFTMAX, why
    raise UsageError(
        f"it is not clear what the {units} outputs of the network are: they lie between {float(values.min()):.3g} and "
        f"{float(values.max()):.3g}"
        + (
            f", and are not simply those of its last module, {kind}"
            if module
            else ", and no module shows where they come from, as in a TorchScript program"
        )
        + ". Set target.output to softmax or sigmoid (for logits), probabilities, or values (in Python "
        "target={'output': …})"
    )


def _source(
    values: torch.Tensor, last: Sequence[tuple[nn.Module, torch.Tensor]]
) -> tuple[nn.Module | None, torch.Tensor | None]:
    """The module whose output the network's is, else the last one, with its output as `_per_image` gives it."""
    outputs = [(module, _per_image(output.double(), values)) for module, output in last]
    # The last module may belong to an auxiliary output.
    for module, logits in outputs:
        if logits is not None and (_proportional(logits, values) or _equal(logits.sigmoid(), values)):
            return module, logits
    return outputs[0] if outputs else (None, None)


def check(meaning: OutputMeaning, outputs: torch.Tensor) -> None:
    """Raises UsageError if outputs, of shape (images, units), cannot mean what the user says."""
    low, high = float(outputs.min()), float(outputs.max())
    why = ""
    if meaning in (OutputMeaning.SOFTMAX, OutputMeaning.SIGMOID) and outputs.shape[1] > 1 and _sum_to_one(outputs):
        why = "the outputs are probabilities already, as they sum to 1; expected probabilities"
    elif meaning is OutputMeaning.PROBABILITIES and (low < -_TOLERANCE or high > 1 + _TOLERANCE):
        why = f"the outputs lie between {low:.3g} and {high:.3g}; expected softmax or sigmoid (logits), or values"
    if why:
        raise UsageError(f"target.output={meaning}: {why}")


def activations(meaning: OutputMeaning, output: torch.Tensor) -> torch.Tensor:
    """Returns the activations for a network's output, both of shape (images, units)."""
    match meaning:
        case OutputMeaning.SOFTMAX:
            return output.softmax(dim=1)
        case OutputMeaning.SIGMOID:
            # In double precision, in which small probabilities keep their digits.
            return output.double().sigmoid().float()
        case _:
            return output


@dataclass(frozen=True, slots=True)
class ClassOutput:
    """The classes of a network, and how its output, shape (images, classes), is read."""

    meaning: OutputMeaning
    exclude: bool
    """Whether they exclude each other, so that their probabilities sum to 1. If not, each has a sigmoid of its own."""
    count: int

    @classmethod
    def of(cls, meaning: OutputMeaning, output: torch.Tensor) -> "ClassOutput | None":
        """Returns the classes that an output for some images shows; None if it has none."""
        if output.ndim != 2 or meaning is OutputMeaning.VALUES:
            return None
        count = output.shape[1]
        if meaning is OutputMeaning.SOFTMAX and count == 1:
            return None
        exclude = meaning is OutputMeaning.SOFTMAX or (
            meaning is OutputMeaning.PROBABILITIES and count > 1 and _sum_to_one(output)
        )
        return cls(meaning, exclude, count)

    def logarithms(self, output: torch.Tensor) -> torch.Tensor:
        """Returns the log-probabilities, float64."""
        match self.meaning:
            case OutputMeaning.SOFTMAX:
                return torch.log_softmax(output.double(), dim=1)
            case OutputMeaning.SIGMOID:
                return torch.nn.functional.logsigmoid(output.double())
            case _:
                return output.double().clamp_min(_LEAST).log()

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        """Returns the logits, float64. Those of probabilities are log p where classes exclude each other, and else
        log p - log(1 - p)."""
        if self.meaning in (OutputMeaning.SOFTMAX, OutputMeaning.SIGMOID):
            return output.double()
        logarithms = self.logarithms(output)
        return logarithms if self.exclude else logarithms - (1 - output.double()).clamp_min(_LEAST).log()


class LastModules:
    """Forward hook that keeps the last modules without children that were called, and their outputs, the last first."""

    def __init__(self) -> None:
        self.found: deque[tuple[nn.Module, torch.Tensor]] = deque(maxlen=8)

    def __call__(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and not isinstance(module, PASSING):
            self.found.appendleft((module, output.detach().to("cpu", torch.float32, copy=True)))


def _sum_to_one(values: torch.Tensor) -> bool:
    rows = values.double()
    return bool((rows >= -_TOLERANCE).all() and ((rows.sum(dim=1) - 1).abs() < _TOLERANCE).all())


def _per_image(before: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
    """The last module's output in the shape of the network's; a mean over positions where it has some."""
    images, units = values.shape
    if before.ndim == 0 or before.shape[0] != images:
        return None
    if before.numel() == values.numel():
        return before.reshape(images, units)
    if before.ndim > 2 and before.shape[1] == units:
        return before.flatten(2).mean(2)
    if before.ndim > 2 and before.shape[-1] == units:
        return before.reshape(images, -1, units).mean(1)
    return None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max())))


def _proportional(logits: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether the outputs are the logits, or the logits divided by a temperature."""
    scale = float((logits * values).sum() / logits.square().sum().clamp_min(1e-30))
    return scale > 0 and _equal(scale * logits, values)
