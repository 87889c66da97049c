"""Where the weights of models come from, and which files of a repository are loaded. Imports no large library."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

DENOISERS = ("transformer", "unet")
"""Names of the denoising network in diffusion pipelines."""

TEXT_ENCODERS = ("text_encoder_3", "text_encoder_2", "text_encoder")
"""Names of text encoders in diffusion pipelines. The first one that a pipeline has is its largest."""

# What `from_pretrained` loads without a variant such as fp16 or non_ema.
STANDARD = re.compile(
    r"(?:(?P<part>[^/]+)/)?(?:diffusion_pytorch_model|model|pytorch_model)(?:-\d{5}-of-\d{5})?\.(?:safetensors|bin)"
)

# What vLLM loads, and what it loads with load_format=mistral, from the model's root folder.
VLLM = re.compile(r"(?P<part>)(?!consolidated)[^/]+\.(?:safetensors|bin|pt)")
MISTRAL = re.compile(r"(?P<part>)consolidated[^/]*\.safetensors")

NF4 = 0.5 + 4 / 64
"""Bytes per weight: 4 bits, and a 32-bit scale for each block of 64 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A repository or folder with weights that each replica of a pool loads."""

    role: str
    """The pool whose replicas load the weights."""
    key: str
    given: str
    """A folder or a hub id."""
    itemsize: float = 4
    """Bytes of a floating-point weight once it is loaded."""
    pattern: re.Pattern[str] = STANDARD
    """Matches the files that are loaded. Its group `part` is the folder of a part of a diffusers pipeline."""
    skipped: tuple[tuple[str, ...], ...] | None = None
    """For a diffusers pipeline: the parts that another source provides, each as the folders that may hold it, the
    preferred one first. None: the source is a single model."""
    is_offloaded: bool = False
    """Whether only the largest part is on the GPU at a time."""
    revision: str | None = None

    def files(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Selects what is loaded, safetensors preferred, by part of the pipeline ("" for a single model)."""
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
