"""Starts a vLLM engine from a config.

Its weights are loaded in separate processes, whose errors are only visible as text in a log. Therefore the config is
checked as far as possible before, and the log is captured during the start.
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

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.shipped import install_command
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from openmaia.models.backbones.vllm.files import check_files

CONFIG_KEYS = {
    "model": "backbone.model",
    "max_model_len": "backbone.context_tokens",
    "max_num_seqs": "backbone.concurrency",
    "limit_mm_per_prompt": "backbone.images_per_prompt",
    "tensor_parallel_size": "backbone.tensor_parallel",
    "gpu_memory_utilization": "backbone.memory_fraction",
    "kv_cache_memory_bytes": "backbone.kv_cache_gb",
    "dtype": "backbone.dtype",
    "enforce_eager": "backbone.eager",
}
"""The config key that sets an argument of vLLM."""

# What vLLM and transformers raise for a model or a setting that they cannot use.
START_ERRORS = (
    VLLMError, ValueError, TypeError, KeyError, AttributeError, OSError, RuntimeError, ImportError, AssertionError,
)  # fmt: skip

MEMORY = re.compile(r"memory|max_model_len|max seq len", re.IGNORECASE)  # of messages about too little memory

RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Exit)(?::.*)?$", re.MULTILINE)  # the last line of a traceback

RECORD = "\x1e"  # begins each record of the captured log


def engine_config(config: VllmBackboneConfig, gpu_share: float) -> VllmConfig:
    """Builds the engine's config and checks it as far as possible without loading weights. `gpu_share` may be a
    fraction; 0 is a CPU. Raises UsageError if the model or a setting cannot be used."""
    _set_environment()
    arguments = _arguments(config, gpu_share)
    arguments["kv_cache_memory_bytes"] = int(config.kv_cache_gb * 2**30) or None
    check_files(config.model, arguments.get("revision"), "load_format" in config.arguments)
    try:
        vllm_config = AsyncEngineArgs(**arguments).create_engine_config()
    except START_ERRORS as error:
        raise _start_error(config, str(error)) from error
    if config.sees == "images" and not vllm_config.model_config.supports_multimodal_inputs:
        raise UsageError(
            f"backbone.model={config.model!r} takes no images ({', '.join(vllm_config.model_config.architectures)}); "
            "give a vision-language model, or set backbone.sees=text, so that a viewer describes the images in words"
        )
    return vllm_config


async def start(vllm_config: VllmConfig, config: VllmBackboneConfig) -> AsyncLLM:
    """Loads the weights. Raises UsageError with the error of the engine's processes if it could not start."""
    with _error_log(vllm_config) as log:
        try:
            return AsyncLLM.from_vllm_config(vllm_config, disable_log_stats=True)
        except START_ERRORS as error:
            raise _start_error(config, _first_error(log) or str(error)) from error


def _set_environment() -> None:
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # The engine starts while other threads run, and a fork would copy the locks that they hold.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if current_platform.is_cpu():
        # In GiB. By default, vLLM takes nearly all of the main memory.
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")


def _arguments(config: VllmBackboneConfig, gpu_share: float) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(AsyncEngineArgs)]
    for name in config.arguments:
        if name in CONFIG_KEYS:
            raise UsageError(f"backbone.arguments.{name} has its own key; set {CONFIG_KEYS[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"backbone.arguments.{name} is no argument of vLLM's engine"
                + (f"; the nearest is {near[0]}" if near else "; vllm serve --help lists them, with _ for -")
            )
    return {
        "model": str(user_path(config.model)),
        "max_model_len": config.context_tokens,
        "max_num_seqs": config.concurrency,
        "limit_mm_per_prompt": {
            "image": config.images_per_prompt if config.sees == "images" else 0,
            "video": 0,
            "audio": 0,
        },
        "tensor_parallel_size": config.tensor_parallel,
        "dtype": config.dtype,
        "enforce_eager": config.eager,
        "enable_prefix_caching": True,
        # By default, the prefix cache of models with sliding windows, such as Gemma 3, keeps only the ends of prompts.
        # Each reply, and everything before the first image that is left out, would then be computed again.
        "prefix_cache_retention_interval": None,
        # By default, templates that accept only text get all images at the front of a turn.
        "interleave_mm_strings": True,
        **_platform(config, gpu_share),
        **config.arguments,
    }


def _platform(config: VllmBackboneConfig, gpu_share: float) -> dict[str, Any]:
    parallel = config.tensor_parallel
    # Inside a placement group, vLLM would start its processes by Ray, one per bundle. A replica has a single bundle with
    # all of its GPUs.
    backend = {"distributed_executor_backend": "mp"} if parallel > 1 else {}
    if current_platform.is_cpu():
        if gpu_share:
            raise UsageError(
                f"pools.backbone.num_gpus={gpu_share:g}, but the vLLM installed here is the one for CPUs; set it to 0, or "
                f"in an environment of its own: {install_command('gpu')}"
            )
        # On a CPU, vLLM 0.32 dies if it reads the prompt of a seeded request in parts ("CPU Generator does not use
        # offset"). Each prompt therefore has to fit into one step.
        return {"enable_chunked_prefill": False, "max_num_batched_tokens": max(config.context_tokens, 2048), **backend}
    if gpu_share <= 0 or (parallel > 1 and gpu_share < parallel):
        raise UsageError(
            f"pools.backbone.num_gpus={gpu_share:g} with backbone.tensor_parallel={parallel}; expected at least "
            f"{parallel if parallel > 1 else 'a part of one GPU'}"
        )
    return {"gpu_memory_utilization": config.memory_fraction * min(gpu_share / parallel, 1.0), **backend}


def _start_error(config: VllmBackboneConfig, text: str) -> UsageError:
    reason = _reason(text)
    hints = [
        f"{name} is {key} here"
        for name, key in CONFIG_KEYS.items()
        if re.search(rf"\b{name}\b", reason) and name != "model"
    ]
    if MEMORY.search(reason):
        share = "VLLM_CPU_KVCACHE_SPACE (in GiB)" if current_platform.is_cpu() else "backbone.memory_fraction"
        hints.append(
            f"{share} and backbone.context_tokens ({config.context_tokens}) decide whether the memory suffices"
        )
    if "mamba cache mode" in reason and current_platform.is_cpu():
        # The prefix cache of linear layers needs prompts in parts, which a CPU does not read, see `_platform`.
        hints.append("on a CPU, set backbone.arguments.enable_prefix_caching=false for a model with linear layers")
    message = "; ".join([reason, *hints])
    return UsageError(f"backbone.model={config.model!r} cannot be served by vLLM: {message}", detail=text)


def _reason(text: str) -> str:
    """The message, without what pydantic, vLLM and transformers write around it."""
    inner = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", text, re.DOTALL)
    return " ".join((inner.group(1) if inner else text).split())[:600]


@contextmanager
def _error_log(vllm_config: VllmConfig) -> Iterator[Path | None]:
    """Copies the errors that the engine's processes log to a file. None if the user has configured vLLM's logging."""
    settings = vllm_config.logging_config
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


def _first_error(log: Path | None) -> str:
    if log is None or not log.is_file():
        return ""
    # The first traceback: later ones are of processes that waited for the one that failed.
    for record in log.read_text(errors="replace").split(RECORD):
        if raised := RAISED.findall(record):
            return raised[-1]
    return ""
