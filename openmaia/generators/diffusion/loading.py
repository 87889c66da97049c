"""From a DiffusionConfig to a pipeline of diffusers that is ready to draw."""

import importlib
import inspect
from typing import Any, Literal

import diffusers
import torch
import transformers
from diffusers.pipelines.auto_pipeline import AutoPipelineForText2Image
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.quantizers.quantization_config import BitsAndBytesConfig
from safetensors import SafetensorError

from openmaia.errors import UsageError
from openmaia.generators.diffusion.hub import DENOISERS, TEXT_ENCODERS, located, read_json
from openmaia.schema import DiffusionConfig

Role = Literal["generator", "editor"]
Index = dict[str, Any]
"""model_index.json: part -> (library, class)."""

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    RuntimeError,
    AttributeError,
    ImportError,
    KeyError,
    AssertionError,
    SafetensorError,
)
"""What diffusers and transformers raise on models that are incomplete, damaged, or of another kind."""


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def load(config: DiffusionConfig, role: Role) -> Any:
    """A text-to-image pipeline (generator) or an editing one (editor), on the GPU where there is one.

    Raises UsageError, naming the key, for a model that is unknown, gated, out of reach, damaged, of another kind, or
    too large for the device.
    """
    key = f"{role}.diffusion"
    dtype = _dtype(key, config)
    index = _index(f"{key}.model", config.model)
    _quiet()
    parts = _parts(key, config, index, dtype)
    # A black picture in place of a refused one would look like a unit that does not respond.
    parts |= {"safety_checker": None, "requires_safety_checker": False} if "safety_checker" in index else {}
    loader = AutoPipelineForText2Image if role == "generator" else DiffusionPipeline
    try:
        pipeline: Any = loader.from_pretrained(located(config.model), dtype=dtype, **parts)
        _check_kind(f"{key}.model={config.model!r}", pipeline, role)
        _place(pipeline, config.offload)
    except UsageError:
        raise
    except UNREADABLE as error:
        raise _unusable(f"{key}.model={config.model!r}", error) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _dtype(key: str, config: DiffusionConfig) -> torch.dtype:
    if config.dtype not in DTYPES:
        raise UsageError(f"{key}.dtype={config.dtype!r} is not known; expected {', '.join(DTYPES)}")
    if config.quantize not in ("", "nf4"):
        raise UsageError(f"{key}.quantize={config.quantize!r} is not known; expected nf4, or nothing")
    return DTYPES[config.dtype]


def _index(key: str, model: str) -> Index:
    if not model:
        raise UsageError(f"{key} is empty; expected a hub id or a folder of a diffusers pipeline")
    index = read_json(key, model, "model_index.json")
    if index is None:
        raise UsageError(f"{key}={model!r} has no model_index.json; expected a whole pipeline in diffusers' layout")
    return index


def _quiet() -> None:
    """Prompts that are cut short and progress bars would fill the logs of a run."""
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def _parts(key: str, config: DiffusionConfig, index: Index, dtype: torch.dtype) -> dict[str, Any]:
    """The parts that come from repositories of their own, or that are quantized while they are loaded."""
    wanted = (("transformer", config.transformer, DENOISERS), ("text_encoder", config.text_encoder, TEXT_ENCODERS))
    parts: dict[str, Any] = {}
    for option, own, candidates in wanted:
        if not own and not config.quantize:
            continue
        name = next((name for name in candidates if index.get(name, [None])[0]), None)
        given = f"{key}.{option}={own!r}" if own else f"{key}.quantize={config.quantize!r}"
        if name is None:
            raise UsageError(f"{given}: {config.model!r} has no {' or '.join(candidates)} to take its place")
        source, folder, settings = _source(f"{key}.{option}", config, own, name)
        quantize = bool(config.quantize) and "quantization_config" not in settings
        quantized = quantize or "quantization_config" in settings
        arguments = {
            "subfolder": folder,
            "dtype": dtype,
            **({"quantization_config": _nf4(index[name][0], dtype)} if quantize else {}),
            # bitsandbytes packs weights on the device where they are going to stay.
            **({"device_map": {"": str(device())}} if quantized else {}),
        }
        parts[name] = _part(given, index[name], source, arguments)
    return parts


def _source(key: str, config: DiffusionConfig, own: str, name: str) -> tuple[str, str, Index]:
    """(repository, folder in it, settings) of a part; a repository of its own may hold it at its root or under its name."""
    source = own or config.model
    for folder in ("", name) if own else (name,):
        settings = read_json(key, source, f"{folder}/config.json" if folder else "config.json")
        if settings is not None:
            return source, folder, settings
    raise UsageError(f"{key}={source!r} has neither config.json nor {name}/config.json")


def _nf4(library: str, dtype: torch.dtype) -> Any:
    kind = BitsAndBytesConfig if library == "diffusers" else transformers.BitsAndBytesConfig
    return kind(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def _part(given: str, described: list[str], source: str, arguments: dict[str, Any]) -> torch.nn.Module:
    library, name = described
    if library not in ("diffusers", "transformers"):
        raise UsageError(f"{given}: the pipeline takes its {name} from code of its own, which is not run")
    try:
        kind = getattr(importlib.import_module(library), name)
        module, told = kind.from_pretrained(located(source), output_loading_info=True, **arguments)
    except UNREADABLE as error:
        raise _unusable(given, error) from error
    # Weights that are missing would be drawn at random, and the pictures be noise.
    if missing := sorted(told["missing_keys"]):
        raise UsageError(f"{given} lacks {len(missing)} weights of a {name}, such as {missing[0]}")
    return module


def _check_kind(given: str, pipeline: Any, role: Role) -> None:
    accepted = parameters(pipeline.__call__)
    name = type(pipeline).__name__
    if "prompt" not in accepted or "generator" not in accepted:
        raise UsageError(f"{given} is a {name}, which takes no prompt; expected a text-to-image or an editing pipeline")
    # strength, mask: pictures are painted over, not edited by instruction.
    if role == "editor" and ("image" not in accepted or {"strength", "mask_image"} & set(accepted)):
        raise UsageError(
            f"{given} is a {name}, which does not edit by instruction; expected one such as FLUX.1-Kontext or "
            "InstructPix2Pix"
        )


def _place(pipeline: Any, offload: bool) -> None:
    if offload and device().type == "cuda":
        pipeline.enable_model_cpu_offload()
    else:
        pipeline.to(device())
    if hasattr(getattr(pipeline, "vae", None), "enable_slicing"):
        # One picture at a time: decoding is short, and its memory would otherwise decide how large batches can be.
        pipeline.vae.enable_slicing()


def _unusable(given: str, error: Exception) -> UsageError:
    text = " ".join(str(error).split())[:400]
    if isinstance(error, torch.OutOfMemoryError):
        return UsageError(f"{given} does not fit into the GPU's memory; set quantize=nf4 or offload=true: {text}")
    if "No GPU found" in text:
        return UsageError(
            f"{given}: weights of 4 bits need a GPU, and none is visible; take a model that is not quantized"
        )
    return UsageError(f"{given} cannot be loaded: {type(error).__name__}: {text}")
