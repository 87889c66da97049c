"""Config sections of the backbone and of what else is a language model."""

from dataclasses import dataclass, field
from typing import Any

SERVED = ("vllm", "openai", "anthropic")
"""Kinds of backbones that are language models."""


@dataclass
class VllmConfig:
    """`backbone.vllm`: the engine of a backbone on the GPUs of this cluster."""

    tensor_parallel: int = 1
    """Number of GPUs of one node among which a replica divides each layer of the model. `pools.backbone.num_gpus` must be
    at least as large."""
    memory_fraction: float = 0.9
    """Share of its GPU memory that a replica uses. A replica with a fraction of a GPU (`pools.backbone.num_gpus`) uses
    this share of the fraction."""
    quantization: str = ""
    """A quantization method of vLLM. Empty: as the model says."""
    dtype: str = "auto"
    """Floating-point type of the weights."""
    tokenizer_mode: str = "auto"
    """vLLM's tokenizer mode, such as `mistral`."""
    eager: bool = False
    """Runs vLLM without CUDA graphs and compilation: it starts faster and answers more slowly."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of vLLM's engine by name."""
    parameters: float = 0.0
    """Parameters of the model in billions, as its makers state them. 0: unknown. A run does not use the number: tests
    use it to check that the shipped models fit the GPUs of the shipped files in `configs/machine`."""


@dataclass
class BackboneConfig:
    """`backbone`: the model that plays the agent."""

    kind: str = "scripted"
    """`scripted`: a deterministic experimenter without a language model; `replay`: repeats the replies of an earlier
    investigation; `labels`: answers with the labels that another method gave to the units, which are then evaluated
    like those of an agent; `vllm`: a model on the GPUs of this cluster; `openai`: a server with OpenAI's interface;
    `anthropic`: Anthropic's server; `python`: set by OpenMAIA if an object was passed to its Python functions
    (`openmaia.investigate`)."""
    eyes: str = "efficientnet_lite2"
    """scripted only: the classifier through which the scripted agent sees images. It must not be the target."""
    record: str = ""
    """replay: the record of an earlier investigation (.parquet) or a history.json of the published MAIA code, which
    every unit repeats; or a folder with a LAYER/UNIT/history.json for each unit. labels: a table (.csv) with the
    columns layer, unit, description and optionally method; another table that `openmaia import-maia` reads; or the
    labels.jsonl that this command writes."""
    model: str = ""
    """vllm: a name on the Hugging Face hub or a folder. openai, anthropic: the name of the model on the server. labels:
    the name of the method that made the labels."""
    base_url: str = ""
    """openai, anthropic: address of the server. Empty: that of OpenAI or Anthropic. API keys are read from the
    variables OPENAI_API_KEY and ANTHROPIC_API_KEY."""
    temperature: float = 0.7
    """Sampling temperature. It rises by 0.3 with each successive turn that brings nothing new, up to 1.5 with vllm and
    with `protocol=grammar`, and up to 1 otherwise."""
    top_p: float = 0.95
    """Nucleus sampling: the probability mass that is sampled from."""
    context_tokens: int = 32768
    """Longest conversation in tokens, including the next reply. A longer one loses its oldest images first, then its
    oldest experiment outputs."""
    images_per_prompt: int = 64
    """Largest number of images in a conversation."""
    concurrency: int = 32
    """Number of conversations that are answered concurrently: per replica (vllm), or in total (openai, anthropic)."""
    timeout: float = 300.0
    """Longest silence of a server in seconds: before the first token of a reply, or between two tokens."""
    sees: str = "images"
    """`images`: displayed images are sent to the model; `text`: for a model that takes no images, they are replaced by
    descriptions that the model in the section `viewer` writes."""
    protocol: str = "text"
    """The form in which the model writes an experiment or an answer. `text`: text with headings, as in the published
    MAIA code; `grammar`: the same text, which the server or engine enforces (vllm, and openai with llama.cpp, vLLM or
    SGLang); `tools`: calls of two functions, for models that were trained to call functions (openai)."""
    tries: int = 6
    """Attempts of a request to a server that is overloaded or unreachable, before this counts as an outage."""
    outage_minutes: float = 30.0
    """Longest time for which investigations wait for a server that is away, is overloaded or limits their rate, before they
    fail. It holds for the images APIs of `generator` and `editor`, too."""
    vllm: VllmConfig = field(default_factory=VllmConfig)
