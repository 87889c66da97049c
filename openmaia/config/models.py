"""Config sections of the models: target, generator, editor and backbone."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

SERVED = ("vllm", "openai", "anthropic")
"""Kinds of backbones that are language models."""


@dataclass
class SyntheticConfig:
    """`target.synthetic`: units that the user defines by the concepts to which they respond.

    They replace the predefined synthetic units that `target.units` selects.
    """

    mode: str = ""
    """What the units respond to. `mono`: one concept; `or`: one of two concepts; `and`, `andnot`: the first concept if
    the second one is present (`and`) or absent (`andnot`)."""
    labels: list[str] = field(default_factory=list[str])
    """The concepts of the only unit: one for the mode `mono`, otherwise two, such as `[cheese, lemon]`."""
    folder: str = ""
    """Instead of `labels`, for several units of one mode: a folder with one subfolder of images per unit, whose name
    gives the concepts, `LABEL` or `LABEL1_LABEL2`."""


@dataclass
class TargetConfig:
    """`target`: the network under study."""

    kind: str = "network"
    """`network`: a PyTorch module that is read through hooks; `synthetic`: units that respond to given concepts, which
    Grounding DINO and SAM find in the image; `closed_form`: units whose activations are formulas over
    pixel statistics and network outputs. For the last two kinds it is known what the units respond to."""
    name: str = MISSING
    """Name of the target in units, records and folders."""
    network: str = ""
    """A network of this package (`resnet152`, `dino_vits8`, `clip_rn50`, `efficientnet_lite0`, ...),
    `torchvision:NAME`, `timm:NAME`, `hf:ID`, or a function of yours that returns one, `package.module:function`,
    installed or in the current folder. `python:CLASS`: set by OpenMAIA if a module was passed to its Python functions
    (`openmaia.investigate`)."""
    weights: str = ""
    """A checkpoint that replaces the network's weights: safetensors, or a pickle that holds tensors only. `FILE#KEY`
    selects one of several sets of weights in it, such as `model_ema`."""
    layers: list[str] = field(default_factory=list[str])
    """Names of modules of the network. `output` is its final output."""
    output: str = ""
    """What the final output is. `softmax`: logits of classes, whose activations are probabilities; `sigmoid`: a logit
    for each output, likewise; `probabilities` or `values` (a regression, an embedding): the activations themselves.
    Empty: found out from the last module and the outputs for some images, and said."""
    entries: dict[str, str] = field(default_factory=dict[str, str])
    """The entry to read, by layer, if a layer's output is a tuple, a mapping or an object of several tensors, such as
    `{output: logits}`. Usually it is found without it."""
    preprocess: str = "weights"
    """`weights`: the network's own preprocessing; `published`: that of the published MAIA code, which does not crop. A
    module of yours that declares none needs `size`, `mean` and `std`, because activations depend on the preprocessing.
    `python`: set by OpenMAIA if a function was passed to its Python functions (`openmaia.investigate`)."""
    size: int = 0
    """Side of the network's input in pixels. 0: as the network's preprocessing says."""
    crop: float = 0.0
    """Fraction of an image's shorter side that the central crop keeps. 0: as the network's preprocessing says; 1 if it
    says nothing."""
    mean: list[float] = field(default_factory=list[float])
    """Mean of each channel, which is subtracted from pixel values between 0 and 1: three values for red, green and
    blue, or one for a network of grey images. Empty: as the network's preprocessing says."""
    std: list[float] = field(default_factory=list[float])
    """Standard deviation of each channel, by which pixel values are divided after the mean is subtracted. As many
    values as `mean`."""
    directions: dict[str, str] = field(default_factory=dict[str, str])
    """Safetensors files by layer name. Each holds a tensor `weight` of shape (units, channels) and optionally `bias`.
    It adds the layer `LAYER/directions`, with one unit per row of `weight`, such as a feature of a sparse
    autoencoder."""
    detector: str = "IDEA-Research/grounding-dino-tiny"
    """synthetic only: the Grounding DINO that finds concepts."""
    segmenter: str = "facebook/sam-vit-huge"
    """synthetic only: the SAM that turns boxes into masks. Empty: the boxes themselves are the masks."""
    units: str = "repo"
    """synthetic only: the synthetic units of the published MAIA code (`repo`) or those of the MAIA paper (`paper`)."""
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    family: str = "small"
    """closed_form only: `small`: 12 units without noise; `development`: 63 noisy units on which an agent may be tuned;
    `held_out`: 306 others, only for measurements; `biased`: 96 classifiers, half of them with a planted bias."""
    shuffled: bool = False
    """closed_form only: every image gets the activation of another image. This is a control, as nothing explains such
    units."""


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
