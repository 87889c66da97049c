"""The config section of the network under study."""

from dataclasses import dataclass, field

from omegaconf import MISSING


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
