"""Config sections of the models: target, generator, editor and backbone."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

SERVED = ("vllm", "openai", "anthropic")
"""Kinds of backbones that are language models."""


@dataclass
class SyntheticConfig:
    """`target.synthetic`: synthetic units that the user defines, instead of those of `target.units`."""

    mode: str = ""
    """What the units respond to. `mono`: one concept; `or`: one of two concepts; `and`, `andnot`: the first concept in the
    presence or absence of the second."""
    labels: list[str] = field(default_factory=list[str])
    """The concepts of one unit, such as `[cheese, lemon]`."""
    folder: str = ""
    """A folder of images per unit, named `LABEL` or `LABEL1_LABEL2`, instead of `labels`."""


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
    """A network of this package (`resnet152`, `dino_vits8`, `clip_rn50`, `efficientnet_lite0`, ...), `torchvision:NAME`,
    `timm:NAME`, `hf:ID`, or a function of yours that returns one, `package.module:function`, installed or in the current
    folder. `python:CLASS`: a module that was passed in Python, in the config of such an investigation."""
    weights: str = ""
    """A checkpoint that replaces the network's weights: safetensors, or a pickle that holds tensors only."""
    layers: list[str] = field(default_factory=list[str])
    """Names of modules of the network. `output` is its final output, read as class probabilities."""
    preprocess: str = "weights"
    """`weights`: the network's own preprocessing; `published`: that of the published MAIA code, which does not crop. A
    module of yours that declares none needs `size`, `mean` and `std`, because another preprocessing gives other units.
    `python`: a function that was passed in Python, in the config of such an investigation."""
    size: int = 0
    """Side of the network's input in pixels. 0: as its preprocessing says."""
    crop: float = 0.0
    """Fraction of an image's shorter side that the central crop keeps. 0: as its preprocessing says; 1 if it says nothing."""
    mean: list[float] = field(default_factory=list[float])
    """Mean of each channel, subtracted from values of 0 to 1: three values for red, green and blue, one for a network of
    grey images. Empty: as its preprocessing says."""
    std: list[float] = field(default_factory=list[float])
    """Standard deviation of each channel, by which values are divided then. As many values as `mean`."""
    directions: dict[str, str] = field(default_factory=dict[str, str])
    """Safetensors files by layer, with `weight` of shape (units, channels) and an optional `bias`. The layer
    `LAYER/directions` then has a unit per row, such as a feature of a sparse autoencoder."""
    detector: str = "IDEA-Research/grounding-dino-tiny"
    """synthetic only: the Grounding DINO that finds concepts."""
    segmenter: str = "facebook/sam-vit-huge"
    """synthetic only: the SAM that turns boxes into masks. Empty: boxes are masks."""
    units: str = "repo"
    """synthetic only: the synthetic units of the published MAIA code (`repo`) or those of the MAIA paper (`paper`)."""
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    family: str = "small"
    """closed_form only: `small`: twelve exact units; `held_out`, `development`: hundreds of graded, noisy units; `biased`: 96
    classifiers, half of them with a planted bias."""
    shuffled: bool = False
    """closed_form only: every image gets the activation of another image, as a control that cannot be explained."""


@dataclass
class DiffusionConfig:
    """`generator.diffusion`, `editor.diffusion`: a diffusers pipeline."""

    model: str = ""
    """A name on the Hugging Face hub or a folder."""
    transformer: str = ""
    """A repository that replaces the transformer, such as a quantized one."""
    text_encoder: str = ""
    """A repository that replaces the large text encoder (T5 for FLUX)."""
    quantize: str = ""
    """`nf4`: transformer and large text encoder are quantized to 4 bits while they are loaded."""
    dtype: str = "bfloat16"
    """Floating-point type of the weights."""
    steps: int = 0
    """Denoising steps. 0: the pipeline's default."""
    guidance: float = -1.0
    """Guidance scale. Below 0: the pipeline's default."""
    max_text_tokens: int = 256
    """Longest prompt in tokens."""
    offload: bool = False
    """Keeps parts in main memory until they are needed: slower, for GPUs that cannot hold all parts."""


@dataclass
class ImagesApiConfig:
    """`generator.api`, `editor.api`: a server with OpenAI's images API. The key is read from OPENAI_API_KEY."""

    model: str = ""
    """The name of the model on the server."""
    base_url: str = ""
    """Address of the server. Empty: that of OpenAI."""
    size: str = "1024x1024"
    """The size of the images that are requested, width and height in pixels: one of those that the model offers. Generated images are
    then scaled to `generator.size`, edited ones to the size of the original."""
    quality: str = ""
    """The quality that is requested, such as `low`. Empty: the server's default."""
    seed: bool = False
    """Whether the server takes a seed. Without seeds an image that is requested again is another one: images are reproducible only
    as long as they are in the cache (`pools.generator.spill_mb`), and reports say so."""
    concurrency: int = 4
    """Requests at a time."""
    timeout: float = 180.0
    """Longest time for an image in seconds."""
    tries: int = 6
    """Attempts of a request to a server that is overloaded or unreachable."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the request by name, such as `{style: natural}`."""


@dataclass
class GeneratorConfig:
    """`generator`: the text-to-image model."""

    kind: str = "collage"
    """`collage`: composes images from cut-outs, shapes and patterns; `diffusers`: a diffusion model; `openai`: a server with
    OpenAI's images API."""
    parts: str = "packages"
    """collage only: where its objects and textures come from. `packages`: the images that ship in Debian packages;
    `pictures`: the images of the section `pictures`, whose index has to name cut-outs."""
    size: int = 224
    """Side of the images in pixels."""
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    api: ImagesApiConfig = field(default_factory=ImagesApiConfig)


@dataclass
class EditorConfig:
    """`editor`: the instruction-based image editor."""

    kind: str = "collage"
    """`collage`: edits images of the collage generator; `diffusers`: a diffusion model; `openai`: a server with OpenAI's
    images API."""
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    api: ImagesApiConfig = field(default_factory=ImagesApiConfig)


@dataclass
class VllmConfig:
    """`backbone.vllm`: the engine of a backbone on the GPUs of this cluster."""

    tensor_parallel: int = 1
    """GPUs of one node that share the model. `pools.backbone.num_gpus` has to be as large."""
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
    """Without CUDA graphs and compilation: starts faster, answers more slowly."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of vLLM's engine by name."""
    parameters: float = 0.0
    """Parameters of the model in billions, as its makers state them. 0: unknown. Nothing is computed from it at run time; the
    shipped machine files are checked against it."""


@dataclass
class BackboneConfig:
    """`backbone`: the model that plays the agent."""

    kind: str = "scripted"
    """`scripted`: a deterministic experimenter without a language model; `replay`: the replies of an earlier record; `labels`:
    the labels that another method gave to the units, which are then evaluated as those of an agent; `vllm`: a
    model on the GPUs of this cluster; `openai`: a server with OpenAI's interface; `anthropic`: Anthropic's; `python`: an
    object that was passed in Python, in the config of such an investigation."""
    eyes: str = "efficientnet_lite2"
    """scripted only: the classifier through which the experimenter sees. It must not be the target."""
    record: str = ""
    """replay: the record of an earlier investigation (.parquet), or a history.json of the published MAIA code, or a folder
    with LAYER/UNIT/history.json, of which each unit repeats its own. labels: a table (.csv) with the columns layer, unit,
    description and optionally method, or another one that `openmaia import-maia` reads; or the labels.jsonl that it
    writes."""
    model: str = ""
    """vllm: a name on the Hugging Face hub or a folder. openai, anthropic: the name of the model on the server. labels: the
    name of the method."""
    base_url: str = ""
    """openai, anthropic: address of the server. Empty: that of OpenAI or Anthropic. API keys are read from the
    variables OPENAI_API_KEY and ANTHROPIC_API_KEY."""
    temperature: float = 0.7
    """Sampling temperature. It rises by 0.3 with each turn in a row that brings nothing new, to at most 1.5 with vllm and
    with `protocol=grammar`, and to at most 1 otherwise."""
    top_p: float = 0.95
    """Nucleus sampling: the probability mass that is sampled from."""
    context_tokens: int = 32768
    """Longest conversation. A longer one loses its oldest images first, then its oldest experiment outputs."""
    images_per_prompt: int = 64
    """Largest number of images in a conversation."""
    concurrency: int = 32
    """Conversations at a time: per replica (vllm), or altogether (openai, anthropic)."""
    timeout: float = 300.0
    """Longest silence of a server in seconds: before the first token of a reply, or between two."""
    sees: str = "images"
    """`images`: displayed images are sent to the model; `text`: for a model that takes no images, they are replaced by
    descriptions that the model in the section `viewer` writes."""
    protocol: str = "text"
    """The form in which the model writes an experiment or an answer. `text`: text with headings, as in the published
    MAIA code; `grammar`: the same text, which the server or engine enforces (vllm, and openai with llama.cpp, vLLM or
    SGLang); `tools`: calls of two functions, for models that were trained to call functions (openai)."""
    tries: int = 6
    """Attempts of a request to a server that is overloaded or unreachable."""
    outage_minutes: float = 30.0
    """Longest outage of a server that investigations wait for before they fail."""
    vllm: VllmConfig = field(default_factory=VllmConfig)
