"""Loads a pipeline of diffusers."""

import importlib
import inspect
import logging
from importlib.util import find_spec
from typing import Any, Literal

import diffusers
import torch
import transformers
from diffusers.pipelines.auto_pipeline import AutoPipelineForText2Image
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.quantizers.quantization_config import BitsAndBytesConfig
from safetensors import SafetensorError

from openmaia.core.errors import UsageError
from openmaia.core.shipped import install_command
from openmaia.models.device import default_device
from openmaia.models.generators.diffusion import PipelineConfig
from openmaia.models.hub import located, read_json
from openmaia.models.weights import DENOISERS, TEXT_ENCODERS

log = logging.getLogger("openmaia")

DiffusionRole = Literal["generator", "editor"]
PipelineIndex = dict[str, Any]
"""Content of model_index.json (for each component its library and class), or of another JSON config."""

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

# These accept `max_sequence_length` and read all of a prompt nevertheless.
READS_ALL = ("QwenImageEditPipeline", "QwenImageEditPlusPipeline")

# What diffusers and transformers raise for models that are incomplete, damaged or of another kind.
PIPELINE_ERRORS = (
    OSError, ValueError, TypeError, RuntimeError, AttributeError, ImportError, KeyError, AssertionError, SafetensorError,
)  # fmt: skip


def load(config: PipelineConfig, role: DiffusionRole, key: str = "") -> Any:
    """Loads a text-to-image pipeline (generator) or an editing pipeline (editor), on the GPU if there is one.

    Args:
        key: The config section, for messages. Empty: the role.

    Raises:
        UsageError: The model is unknown, gated, damaged, of another kind, cannot be reached, or does not fit on the
            device. The message names the config key.
    """
    key = key or role
    dtype = DTYPES[config.dtype]
    index = _index(f"{key}.model", config.model)
    _silence_libraries()
    components = _components(key, config, index, dtype)
    # A safety checker replaces an image that it refuses by a black one. The unit would appear not to respond.
    components |= {"safety_checker": None, "requires_safety_checker": False} if "safety_checker" in index else {}
    # SDXL marks its images if a package for it is installed; a run must not depend on that.
    components |= {"add_watermarker": False} if str(index.get("_class_name")).startswith("StableDiffusionXL") else {}
    loader = AutoPipelineForText2Image if role == "generator" else DiffusionPipeline
    try:
        pipeline: Any = loader.from_pretrained(located(config.model), dtype=dtype, **components)
        check_kind(f"{key}.model={config.model!r}", pipeline, role)
        _check_options(key, config, pipeline)
        _place(pipeline, config.offload)
    except UsageError:
        raise
    except PIPELINE_ERRORS as error:
        raise _loading_error(f"{key}.model={config.model!r}", error) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _index(key: str, model: str) -> PipelineIndex:
    index = read_json(key, model, "model_index.json")
    if index is None:
        raise UsageError(f"{key}={model!r} has no model_index.json; expected a whole pipeline in diffusers' layout")
    return index


def _silence_libraries() -> None:
    # Progress bars, and warnings about truncated prompts, would fill the logs of a run.
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def _components(key: str, config: PipelineConfig, index: PipelineIndex, dtype: torch.dtype) -> dict[str, Any]:
    """Loads the components that have their own repositories or are quantized, by name."""
    options = (("transformer", config.transformer, DENOISERS), ("text_encoder", config.text_encoder, TEXT_ENCODERS))
    components: dict[str, Any] = {}
    for option, repository, candidates in options:
        if not repository and not config.quantize:
            continue
        name = next((name for name in candidates if index.get(name, [None])[0]), None)
        given = f"{key}.{option}={repository!r}" if repository else f"{key}.quantize={config.quantize!r}"
        if name is None:
            raise UsageError(f"{given}: {config.model!r} has no {' or '.join(candidates)} that it could replace")
        source, folder, settings = _source(f"{key}.{option}", config, repository, name)
        prequantized = settings.get("quantization_config", {})
        if (config.quantize or prequantized.get("quant_method") == "bitsandbytes") and not find_spec("bitsandbytes"):
            raise UsageError(f"{given} needs bitsandbytes; {install_command('quantized')}")
        arguments: dict[str, Any] = {"subfolder": folder, "dtype": dtype}
        if config.quantize and not prequantized:
            arguments["quantization_config"] = _nf4(index[name][0], dtype)
        if config.quantize or prequantized:
            # bitsandbytes packs weights on the device on which they stay.
            arguments["device_map"] = {"": str(default_device())}
        components[name] = _component(given, index[name], source, arguments)
    return components


def _source(key: str, config: PipelineConfig, repository: str, name: str) -> tuple[str, str, PipelineIndex]:
    """Returns (repository, folder, config.json) of a component. Its own repository may have it at the root."""
    source = repository or config.model
    for folder in ("", name) if repository else (name,):
        settings = read_json(key, source, f"{folder}/config.json" if folder else "config.json")
        if settings is not None:
            return source, folder, settings
    raise UsageError(f"{key}={source!r} has neither config.json nor {name}/config.json")


def _nf4(library: str, dtype: torch.dtype) -> Any:
    kind = BitsAndBytesConfig if library == "diffusers" else transformers.BitsAndBytesConfig
    return kind(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def _component(given: str, described: list[str], source: str, arguments: dict[str, Any]) -> torch.nn.Module:
    library, name = described
    if library not in ("diffusers", "transformers"):
        raise UsageError(f"{given}: the pipeline loads its {name} with code of its own, which is never run")
    try:
        kind = getattr(importlib.import_module(library), name)
        module, report = kind.from_pretrained(located(source), output_loading_info=True, **arguments)
    except PIPELINE_ERRORS as error:
        raise _loading_error(given, error) from error
    # Missing weights would be initialised at random, and the images would be noise.
    if missing := sorted(report["missing_keys"]):
        raise UsageError(f"{given} lacks {len(missing)} weights of a {name}, such as {missing[0]}")
    return module


def check_kind(given: str, pipeline: Any, role: DiffusionRole) -> None:
    """Raises UsageError if a pipeline does not do what its role asks. The message begins with `given`."""
    accepted = list(inspect.signature(pipeline.__call__).parameters)
    name = type(pipeline).__name__
    if "prompt" not in accepted or "generator" not in accepted:
        raise UsageError(f"{given} is a {name}, which takes no prompt; expected a text-to-image or an editing pipeline")
    # A pipeline with a strength or a mask paints over images; it does not edit them by instruction.
    if role == "editor" and ("image" not in accepted or {"strength", "mask_image"} & set(accepted)):
        raise UsageError(
            f"{given} is a {name}, which does not edit by instruction; expected one such as FLUX.1-Kontext or "
            "InstructPix2Pix"
        )


def _check_options(key: str, config: PipelineConfig, pipeline: Any) -> None:
    accepted = set(inspect.signature(pipeline.__call__).parameters)
    # Qwen-Image 2.1 distilled to a few steps names their noise, and ignores a number of steps.
    has_own_steps = getattr(pipeline.config, "sample_sigmas", None) is not None
    options = {
        "steps": ("num_inference_steps" in accepted and not has_own_steps, config.steps > 0),
        "guidance": (guidance_argument(pipeline) is not None, config.guidance >= 0),
    }
    name = type(pipeline).__name__
    takes_limit = "max_sequence_length" in accepted and name not in READS_ALL
    if config.max_text_tokens != PipelineConfig.max_text_tokens and not takes_limit:
        log.warning("%s.max_text_tokens is not used: a %s has a limit of its own, or none", key, name)
    if unused := [name for name, (is_known, is_set) in options.items() if is_set and not is_known]:
        raise UsageError(
            f"{', '.join(f'{key}.{name}={getattr(config, name)}' for name in unused)}: {config.model!r}, a "
            f"{name}, takes no such option; leave it out"
        )


def guidance_argument(pipeline: Any) -> str | None:
    """Returns the argument of a pipeline that guides it to its prompt; None if the model was distilled without guidance."""
    accepted = inspect.signature(pipeline.__call__).parameters
    # FLUX has both, and is guided by the other.
    if "true_cfg_scale" in accepted and (accepted["true_cfg_scale"].default > 1 or "guidance_scale" not in accepted):
        return "true_cfg_scale"
    if "guidance_scale" not in accepted or getattr(pipeline.config, "is_distilled", False):  # FLUX.2 klein
        return None
    transformer = getattr(getattr(pipeline, "transformer", None), "config", None)
    # FLUX.1-schnell takes no guidance. FLUX.2 klein, which knows `is_distilled`, calls its transformer a second time for it.
    takes_none = getattr(transformer, "guidance_embeds", None) is False and "is_distilled" not in pipeline.config
    return None if takes_none else "guidance_scale"


def _place(pipeline: Any, offload: bool) -> None:
    if offload and default_device().type == "cuda":
        pipeline.enable_model_cpu_offload()
    else:
        pipeline.to(default_device())
    if hasattr(getattr(pipeline, "vae", None), "enable_slicing"):
        # Decoding one image at a time is fast, and otherwise its memory would limit the batch size.
        pipeline.vae.enable_slicing()


def _loading_error(given: str, error: Exception) -> UsageError:
    text = " ".join(str(error).split())[:400]
    if isinstance(error, torch.OutOfMemoryError):
        return UsageError(f"{given} does not fit into the GPU's memory; set quantize=nf4 or offload=true: {text}")
    if "No GPU found" in text:
        return UsageError(f"{given}: 4-bit weights need a GPU, and none is visible; use a model that is not quantized")
    return UsageError(f"{given} cannot be loaded: {type(error).__name__}: {text}")
