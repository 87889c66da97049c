"""From a config to a running vLLM engine.

The engine loads its weights in processes of its own, whose errors reach us as text in a log. Whatever can be found out
before is therefore checked here first, and the log of the start is kept to be read.
"""

import copy
import dataclasses
import difflib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm import AsyncEngineArgs
from vllm.config import VllmConfig
from vllm.exceptions import VLLMError
from vllm.logger import DEFAULT_LOGGING_CONFIG
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM

from openmaia.backbones.vllm_files import check_files
from openmaia.errors import UsageError
from openmaia.schema import BackboneConfig

OURS = {
    "model": "backbone.model",
    "max_model_len": "backbone.context_tokens",
    "max_num_seqs": "backbone.concurrency",
    "limit_mm_per_prompt": "backbone.images_per_prompt",
    "tensor_parallel_size": "backbone.vllm.tensor_parallel",
    "gpu_memory_utilization": "backbone.vllm.memory_fraction",
    "quantization": "backbone.vllm.quantization",
    "dtype": "backbone.vllm.dtype",
    "tokenizer_mode": "backbone.vllm.tokenizer_mode",
    "enforce_eager": "backbone.vllm.eager",
}
"""vLLM's name -> the config key that sets it."""

REFUSALS = (
    VLLMError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OSError,
    RuntimeError,
    ImportError,
    AssertionError,
)
"""What vLLM and transformers raise for a model or a setting that they cannot use."""

MEMORY = re.compile(r"memory|max_model_len|max seq len", re.IGNORECASE)
RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Exit)(?::.*)?$", re.MULTILINE)
RECORD = "\x1e"
"""Begins each record of the log of a start."""


def engine_config(config: BackboneConfig, gpu_share: float) -> VllmConfig:
    """Checked as far as is possible without loading the weights.

    gpu_share: GPUs that one replica is given, 0 for none. Raises UsageError.
    """
    _quietly()
    arguments = _arguments(config, gpu_share)
    check_files(config.model, arguments.get("revision"), "load_format" in config.vllm.arguments)
    try:
        made = AsyncEngineArgs(**arguments).create_engine_config()
    except REFUSALS as error:
        raise _refused(config, str(error)) from error
    if not made.model_config.supports_multimodal_inputs:
        raise UsageError(
            f"backbone.model={config.model!r} takes no images ({', '.join(made.model_config.architectures)}); expected a "
            "vision-language model: the agent is shown images"
        )
    return made


async def start(made: VllmConfig, config: BackboneConfig) -> AsyncLLM:
    """Takes as long as loading the weights does. Raises UsageError with what the engine's own processes said."""
    with _log(made) as log:
        try:
            return AsyncLLM.from_vllm_config(made, disable_log_stats=True)
        except REFUSALS as error:
            raise _refused(config, _first_raised(log) or str(error)) from error


def _quietly() -> None:
    """vLLM reads these when it starts; its processes inherit them. Whoever has set one already has their way."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # The engine starts from a thread among others, and a fork would copy the locks that those hold.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if current_platform.is_cpu():
        # In GiB. Left alone, vLLM would take nearly all of the main memory.
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")


def _arguments(config: BackboneConfig, gpu_share: float) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(AsyncEngineArgs)]
    for name in config.vllm.arguments:
        if name in OURS:
            raise UsageError(f"backbone.vllm.arguments.{name} has a key of its own here: set {OURS[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"backbone.vllm.arguments.{name} is no argument of vLLM's engine"
                + (f"; the nearest is {near[0]}" if near else "; vllm serve --help lists them, with _ for -")
            )
    engine = config.vllm
    return {
        "model": str(Path(config.model).expanduser()),
        "max_model_len": config.context_tokens,
        "max_num_seqs": config.concurrency,
        "limit_mm_per_prompt": {"image": config.images_per_prompt, "video": 0, "audio": 0},
        "tensor_parallel_size": engine.tensor_parallel,
        "quantization": engine.quantization or None,
        "dtype": engine.dtype,
        "tokenizer_mode": engine.tokenizer_mode,
        "enforce_eager": engine.eager,
        "enable_prefix_caching": True,
        # Else models of sliding windows, such as Gemma 3, forget what lies between the ends of two prompts: each reply, and
        # all before the first image that is left out.
        "prefix_cache_retention_interval": None,
        # Else templates that take a text only get all images put at the front of a turn.
        "interleave_mm_strings": True,
        **_platform(config, gpu_share),
        **engine.arguments,
    }


def _platform(config: BackboneConfig, gpu_share: float) -> dict[str, Any]:
    if current_platform.is_cpu():
        if gpu_share:
            raise UsageError(
                f"pools.backbone.num_gpus={gpu_share:g}, but the vLLM installed here is the one for CPUs; set it to 0, or "
                'pip install -e ".[gpu]" into an environment of its own'
            )
        # vLLM 0.32 dies on a CPU when it has to read the prompt of a seeded request in parts ("CPU Generator does not use
        # offset"), so that each has to fit into one step.
        return {"enable_chunked_prefill": False, "max_num_batched_tokens": max(config.context_tokens, 2048)}
    parallel = config.vllm.tensor_parallel
    if gpu_share <= 0 or (parallel > 1 and gpu_share < parallel):
        raise UsageError(
            f"pools.backbone.num_gpus={gpu_share:g} with backbone.vllm.tensor_parallel={parallel}; expected at least "
            f"{parallel if parallel > 1 else 'a part of one GPU'}"
        )
    share = {"gpu_memory_utilization": config.vllm.memory_fraction * min(gpu_share / parallel, 1.0)}
    # Inside of a placement group vLLM would spread its processes by Ray, one to a bundle; ours is one bundle with all GPUs.
    return share | ({"distributed_executor_backend": "mp"} if parallel > 1 else {})


def _refused(config: BackboneConfig, text: str) -> UsageError:
    reason = _reason(text)
    keys = [
        f"{name} is {key} here" for name, key in OURS.items() if re.search(rf"\b{name}\b", reason) and name != "model"
    ]
    if MEMORY.search(reason):
        share = "VLLM_CPU_KVCACHE_SPACE (in GiB)" if current_platform.is_cpu() else "backbone.vllm.memory_fraction"
        keys.append(f"{share} and backbone.context_tokens ({config.context_tokens}) decide whether the memory suffices")
    said = "; ".join([reason, *keys])
    return UsageError(f"backbone.model={config.model!r} cannot be served by vLLM: {said}", detail=text)


def _reason(text: str) -> str:
    """The sentence in what pydantic, vLLM and transformers wrap around it."""
    found = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", text, re.DOTALL)
    return " ".join((found.group(1) if found else text).split())[:600]


@contextmanager
def _log(made: VllmConfig) -> Iterator[Path | None]:
    """What the engine's processes log as errors while they start also goes to a file. None where the user has
    configured vLLM's log."""
    settings = made.logging_config
    if settings.pylogging_config_file or not settings.configure_logging:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "errors"
        logging = copy.deepcopy(DEFAULT_LOGGING_CONFIG)
        logging["formatters"]["openmaia"] = {"format": f"{RECORD}%(message)s"}
        logging["handlers"]["openmaia"] = {
            "class": "logging.FileHandler",
            "formatter": "openmaia",
            "level": "ERROR",
            "filename": str(log),
        }
        logging["loggers"]["vllm"]["handlers"].append("openmaia")
        settings.pylogging_config_file = str(Path(folder) / "logging.json")
        Path(settings.pylogging_config_file).write_text(json.dumps(logging))
        yield log


def _first_raised(log: Path | None) -> str:
    """The last line of the first traceback: later ones are of processes that waited for the one that failed."""
    if log is None or not log.is_file():
        return ""
    for record in log.read_text(errors="replace").split(RECORD):
        if raised := RAISED.findall(record):
            return raised[-1]
    return ""
