"""Formats in which libraries save dictionaries: each is a file in `dictionaries/`. Nothing is unpickled except tensors.

What cannot be applied exactly as the library's own `encode` does is refused.
"""

import pickle
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

import openmaia.models.targets.dictionaries
from openmaia.core.errors import UsageError
from openmaia.core.paths import source_and_folder, user_path
from openmaia.models.hub import model_file, read_json
from openmaia.models.targets.dictionary import Dictionary, Normalisation

Tensors = Mapping[str, torch.Tensor]

AUTOENCODER = ("W_dec", "W_enc", "b_dec")
"""Tensors that most architectures have: shapes (features, channels), (channels, features) and (channels,)."""

_MATRICES = ("W_enc", "W_dec", "encoder.weight", "decoder.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDictionary:
    """The files of a dictionary, for the function of a format that reads them."""

    given: str
    """What the user gave, for messages."""
    layer: str
    source: str
    channels: int
    config_name: str
    config: Mapping[str, Any]
    weights: Path

    def refused(self, why: str) -> UsageError:
        """Returns an error that names the dictionary."""
        return UsageError(f"{self.given}: {why}")

    def tensors(self) -> Tensors:
        """Returns the tensors of a safetensors file, or of a pickle that holds nothing else.

        Raises:
            UsageError: The file cannot be read, or holds anything else.
        """
        return self._safetensors() if self.weights.suffix == ".safetensors" else self._pickled()

    def check_names(self, tensors: Tensors, kind: str, expected: tuple[str, ...]) -> None:
        """Raises UsageError unless the tensors have these names, and as many axes as each needs."""
        if set(tensors) != set(expected):
            raise self.refused(
                f"{kind} has the tensors {', '.join(sorted(tensors)) or 'none'}; expected {', '.join(sorted(expected))}"
            )
        for name in expected:
            wanted = 2 if name in _MATRICES else 1
            if tensors[name].ndim > wanted or (wanted == 2 and tensors[name].ndim < 2):
                raise self.refused(f"its {name} is {tuple(tensors[name].shape)}; expected {wanted} axes")

    def positive(self, k: Any) -> int:
        """Returns k. Raises UsageError unless it is a whole number of at least 1."""
        if isinstance(k, bool) or not isinstance(k, (int, float)) or k != int(k) or k < 1:
            raise self.refused(f"it has k={k!r}; expected a whole number of at least 1")
        return int(k)

    def normalisation(self, given: Any) -> Normalisation:
        """Returns how the channels are normalised. Raises UsageError where that takes more than the files hold."""
        if given in (None, False):
            return "none"
        if given not in get_args(Normalisation):  # a tuple, so that it may be of any type
            raise self.refused(
                f"it has normalize_activations={given!r}, whose statistics are not in the files; expected "
                f"{', '.join(get_args(Normalisation))}, such as SAELens saves after it has folded them into the weights"
            )
        return given

    def one_threshold(self, threshold: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Returns one threshold for each feature. Raises UsageError unless one number of at least 0 is given."""
        if threshold.numel() != 1:
            raise self.refused(f"its threshold is {tuple(threshold.shape)}; expected one number")
        if float(threshold) < 0:
            raise self.refused(
                f"its threshold is {float(threshold):g}, so that no training has set it; expected 0 or more"
            )
        return torch.full_like(bias, float(threshold))

    def dictionary(
        self,
        encoder: torch.Tensor,
        decoder: torch.Tensor,
        description: str,
        *,
        bias: torch.Tensor,
        offset: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
        gate: torch.Tensor | None = None,
        threshold: torch.Tensor | None = None,
        normalisation: Normalisation = "none",
        k: int = 0,
    ) -> Dictionary:
        """Returns the dictionary, after a check of all shapes.

        With h = encoder · (x - offset), its features are relu(scale · h + bias), and 0 unless h + gate is positive and they
        are above the threshold.

        Args:
            encoder: Shape (features, channels), as the decoder. Of the others, `offset` has the shape (channels,), and the
                rest (features,).

        Raises:
            UsageError: A shape does not match the layer, or a value is not finite.
        """
        features = encoder.shape[0]
        if not features or encoder.shape[1] != self.channels:
            raise self.refused(
                f"it has {features} features of {encoder.shape[1]} channels, and layer {self.layer!r} has {self.channels}"
            )
        tensors = {"encoder": encoder, "decoder": decoder, "bias": bias}
        optional = {"offset": offset, "scale": scale, "gate": gate, "threshold": threshold}
        tensors |= {name: each for name, each in optional.items() if each is not None}
        shapes = {
            "encoder": (features, self.channels),
            "decoder": (features, self.channels),
            "offset": (self.channels,),
        }
        for name, each in tensors.items():
            wanted = shapes.get(name, (features,))
            if tuple(each.shape) != wanted or not each.is_floating_point() or not bool(each.isfinite().all()):
                raise self.refused(
                    f"its {name} is {tuple(each.shape)} of {each.dtype}; expected {wanted} of finite floats"
                )
        if not 0 <= k <= features:
            raise self.refused(f"it has k={k}, and {features} features")
        wide = {name: each.double() for name, each in tensors.items()}
        # All is folded into one product and one threshold for each feature: what follows it then costs almost nothing.
        matrix = wide["encoder"] * wide["scale"][:, None] if scale is not None else wide["encoder"]
        total = wide["bias"] - matrix @ wide["offset"] if offset is not None else wide["bias"]
        level = wide["threshold"] if threshold is not None else torch.zeros_like(total)
        if gate is not None:  # h + gate > 0, in terms of scale · h + bias
            h = wide["bias"] - wide["gate"] * wide["scale"] if scale is not None else wide["bias"] - wide["gate"]
            level = torch.maximum(level, h)
        return Dictionary(
            layer=self.layer,
            source=self.source,
            description=description,
            encoder=matrix.contiguous(),
            bias=total,
            threshold=level.clamp(min=0),
            decoder=decoder.float().contiguous(),
            normalisation=normalisation,
            k=k,
        )

    def _safetensors(self) -> Tensors:
        try:
            return load_file(self.weights)
        except (OSError, SafetensorError) as error:
            raise self.refused(f"its {self.weights.name} cannot be read as safetensors ({str(error)[:200]})") from error

    def _pickled(self) -> Tensors:
        name = self.weights.name
        try:
            state = torch.load(self.weights, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise self.refused(
                f"its {name} is a pickle of more than tensors, and nothing of it was run; save its state_dict()"
            ) from error
        except Exception as error:  # a damaged pickle raises almost anything
            raise self.refused(f"its {name} cannot be read ({str(error)[:200]})") from error
        if not isinstance(state, dict) or not all(
            isinstance(key, str) and isinstance(each, torch.Tensor) for key, each in cast(dict[Any, Any], state).items()
        ):
            raise self.refused(f"its {name} holds no state_dict of tensors")
        return cast(Tensors, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryFormat:
    """How one library saves dictionaries."""

    library: str
    config: str
    """Name of its JSON file."""
    weights: str
    """Name of the file with its tensors."""
    read: Callable[[OpenedDictionary], Dictionary]
    """Raises UsageError for what is not understood."""


@cache
def all_formats() -> tuple[DictionaryFormat, ...]:
    """Returns the formats in all files of the folder, by library."""
    package = openmaia.models.targets.dictionaries
    files = [import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)]
    found = [value for file in files for value in vars(file).values() if isinstance(value, DictionaryFormat)]
    return tuple(sorted(found, key=lambda each: each.library.lower()))


def read_dictionary(layer: str, given: str, channels: int, source: str = "") -> Dictionary:
    """Reads the dictionary of a layer with so many channels.

    Args:
        given: A folder or hub id, or `ID#FOLDER` for a folder inside of it, that holds the files of a format.
        source: Key of the responses that are encoded. Empty: the layer.

    Raises:
        UsageError: The files cannot be read, are not understood, or do not match the layer.
    """
    key, (folder, inner) = f"target.dictionaries.{layer}", source_and_folder(given)
    named = f"target.dictionaries: {layer}={given!r}"
    for each in all_formats():
        names = [f"{inner}/{name}" if inner else name for name in (each.config, each.weights)]
        config = read_json(key, folder, names[0])
        weights = model_file(key, folder, names[1])
        if config is None or weights is None:
            continue
        if not isinstance(cast(Any, config), dict):
            raise UsageError(f"{named}: its {each.config} holds no mapping")
        return each.read(
            OpenedDictionary(
                given=named,
                layer=layer,
                source=source or layer,
                channels=channels,
                config_name=each.config,
                config=config,
                weights=weights,
            )
        )
    expected = ", or ".join(f"{each.config} and {each.weights} of {each.library}" for each in all_formats())
    raise UsageError(f"{named}: {_content(folder, inner)}; expected {expected}")


def _content(source: str, inner: str) -> str:
    folder = user_path(source) / inner
    if not folder.is_dir():
        return "it lacks the files of a dictionary"
    names = sorted(each.name for each in folder.iterdir())
    return f"it has {', '.join(names[:8])}" + (", …" if len(names) > 8 else "") if names else "it is empty"


def rescaled(encoder: torch.Tensor, bias: torch.Tensor, decoder: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns encoder, bias and decoder for decoder rows of norm 1, which reconstruct the same."""
    norm = decoder.double().norm(dim=1).clamp(min=1e-8)
    return encoder * norm[:, None], bias * norm, decoder / norm[:, None]


def described(kind: str, library: str, k: int = 0, hook: Any = None) -> str:
    """Returns what the user is told about a dictionary."""
    trained = f"; trained at {str(hook)[:80]!r}" if hook else ""
    return f"{kind} of {library}{f', k={k}' if k else ''}{trained}"
