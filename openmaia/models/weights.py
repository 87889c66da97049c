"""Where the weights of models come from, and which files of a repository are loaded. Imports no large library."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

DENOISERS = ("transformer", "unet")
"""Names that diffusion pipelines use for their denoising network."""

TEXT_ENCODERS = ("text_encoder_3", "text_encoder_2", "text_encoder")
"""Names that diffusion pipelines use for their text encoders. The first one that a pipeline has is its largest."""

STANDARD = re.compile(
    r"(?:(?P<part>[^/]+)/)?(?:diffusion_pytorch_model|model|pytorch_model)(?:-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
)
"""Matches the files that `from_pretrained` loads if no variant such as fp16 or non_ema is requested."""

VLLM = re.compile(r"(?P<part>)(?!consolidated)[^/]+\.(?:safetensors|bin|pt)")
MISTRAL = re.compile(r"(?P<part>)consolidated[^/]*\.safetensors")
"""VLLM matches the files that vLLM loads, all in the root folder of the model. MISTRAL matches those that it loads
instead with load_format=mistral, which are in Mistral's own format."""

NF4 = 0.5 + 4 / 64
"""Bytes per weight after NF4 quantization: 4 bits, and a 32-bit scale for each block of 64 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A repository or folder with weights that each replica of a pool loads."""

    role: str
    """The pool whose replicas load the weights."""
    key: str
    """The config key that names the weights."""
    given: str
    """A folder, or an id on the Hugging Face hub."""
    itemsize: float = 4
    """Bytes of a floating-point weight once it is loaded."""
    pattern: re.Pattern[str] = STANDARD
    """Matches the files that are loaded; its group `part` is the folder of a part of a diffusers pipeline."""
    skipped: tuple[tuple[str, ...], ...] | None = None
    """For a diffusers pipeline: the parts that are not loaded from here, because another source provides them. Each
    part is a tuple of the folders that may hold it, the preferred one first. None: the source is a single model."""
    is_offloaded: bool = False
    """Whether only the largest part is on the GPU at a time."""
    revision: str | None = None
    """The branch, tag or commit on the hub. None: the default branch."""

    def files(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Selects the files that are loaded from this source. Files in the safetensors format are preferred.

        Args:
            names: The paths of all files of the source, relative to its root.

        Returns:
            The paths of the files by part of the diffusers pipeline, such as "unet". If the source is a single model,
            the only key is an empty string.
        """
        parts: dict[str, list[str]] = {}
        for name in sorted(names):
            if match := self.pattern.fullmatch(name):
                parts.setdefault(match["part"] or "", []).append(name)
        parts = {part: [file for file in files if file.endswith("s")] or files for part, files in parts.items()}
        if self.skipped is None:
            part = _first(("", *DENOISERS, *TEXT_ENCODERS), parts)
            return {"": parts[part]} if part in parts else {}
        unwanted = {"", "safety_checker", *(_first(candidates, parts) for candidates in self.skipped)}
        return {part: files for part, files in parts.items() if part not in unwanted}


def _first(candidates: Iterable[str], names: Iterable[str]) -> str:
    return next((candidate for candidate in candidates if candidate in names), "")
