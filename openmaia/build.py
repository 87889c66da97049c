"""From a config to the services it describes. Heavy modules are imported here, on demand, and nowhere below."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from openmaia.agent.measured import MeasuredBackbone, MeasuredEditor, MeasuredGenerator, MeasuredTarget
from openmaia.agent.options import Options
from openmaia.config import SERVED, to_dict
from openmaia.errors import UsageError
from openmaia.pictures.library import Library
from openmaia.sandbox import Limits as SandboxLimits
from openmaia.schema import Config
from openmaia.services import Backbone, Editor, Generator, Ledger, Services
from openmaia.store.exemplars import ExemplarStore
from openmaia.tools.api import Tools

if TYPE_CHECKING:
    from openmaia.targets.closed_form import ClosedFormClasses, ClosedFormTarget
    from openmaia.targets.hooked import NetworkTarget
    from openmaia.targets.preprocess import Network
    from openmaia.targets.synthetic.target import SyntheticTarget
    from openmaia.targets.synthetic.units import Units

    ReadableTarget = NetworkTarget | SyntheticTarget | ClosedFormTarget | ClosedFormClasses

Role = Literal["target", "generator", "editor", "backbone"]
Say = Callable[[str], None]


def host(role: Role, config: Config) -> Any:
    """The plain object behind a service; remote/ puts it into an actor, everybody else just calls it."""
    match role:
        case "target":
            return target(config)
        case "generator":
            return generator(config)
        case "editor":
            return editor(config)
        case "backbone":
            return backbone(config)


def concurrency(role: Role, config: Config) -> int:
    """Calls that a replica answers at once; 0 for hosts that want one batch after the other. Language models take requests
    as they come and batch by themselves."""
    return config.backbone.concurrency if role == "backbone" and config.backbone.kind in SERVED else 0


def target(config: Config) -> "ReadableTarget":
    match config.target.kind:
        case "network":
            from openmaia.targets.hooked import NetworkTarget

            read = network(config, config.target.weights)
            return NetworkTarget(config.target.name, read, config.target.layers, directions=config.target.directions)
        case "synthetic":
            from openmaia.targets.synthetic.target import SyntheticTarget

            named = config.target
            return SyntheticTarget(
                named.name, named.detector, named.segmenter, named.units, listed=synthetic_units(config)
            )
        case "closed_form":
            from openmaia.targets.closed_form import ClosedFormClasses, ClosedFormTarget

            if config.target.family == "biased":
                return ClosedFormClasses(config.target.name)
            return ClosedFormTarget(config.target.name, family=config.target.family, shuffled=config.target.shuffled)
        case kind:
            raise _unknown("target.kind", kind, "network", "synthetic", "closed_form")


def synthetic_units(config: Config) -> "Units | None":
    """Those of one's own, None where the config names none. Raises UsageError."""
    from openmaia.targets.synthetic.units import own

    given = config.target.synthetic
    return own(given.mode, given.labels, given.folder) if given.mode or given.labels or given.folder else None


def network(config: Config, weights: str) -> "Network":
    """The target's, with these weights in place of its own unless they are empty."""
    from openmaia.targets.networks import load

    found = load(config.target.network, weights, _preset(config))
    side = config.target.size
    return replace(found, preprocess=replace(found.preprocess, size=(side, side))) if side else found


def _preset(config: Config) -> Literal["weights", "published"]:
    if config.target.preprocess == "weights":
        return "weights"
    if config.target.preprocess == "published":
        return "published"
    raise _unknown("target.preprocess", config.target.preprocess, "weights", "published")


def generator(config: Config) -> Generator:
    match config.generator.kind:
        case "collage":
            from openmaia.generators.collage import CollageGenerator

            return CollageGenerator(library(config), config.generator.size)
        case "diffusers":
            from openmaia.generators.diffusion.generator import DiffusionGenerator

            return DiffusionGenerator(config.generator.diffusion, config.generator.size)
        case kind:
            raise _unknown("generator.kind", kind, "collage", "diffusers")


def editor(config: Config) -> Editor:
    match config.editor.kind:
        case "collage":
            from openmaia.generators.collage import CollageEditor

            return CollageEditor(library(config), config.generator.size)
        case "diffusers":
            from openmaia.generators.diffusion.editor import DiffusionEditor

            return DiffusionEditor(config.editor.diffusion)
        case kind:
            raise _unknown("editor.kind", kind, "collage", "diffusers")


def backbone(config: Config) -> Backbone:
    match config.backbone.kind:
        case "scripted":
            from openmaia.backbones.eyes import Eyes
            from openmaia.backbones.scripted import ScriptedBackbone
            from openmaia.targets.networks import classifier

            refuse_own_eyes(config)
            return ScriptedBackbone(Eyes(classifier(config.backbone.eyes)))
        case "replay":
            from openmaia.backbones.replay import ReplayBackbone

            return ReplayBackbone(config.backbone.record)
        case "vllm":
            from openmaia.backbones.vllm_engine import VllmBackbone

            return VllmBackbone(config.backbone, config.pools.backbone.num_gpus)
        case "openai":
            from openmaia.backbones.openai_server import OpenAiBackbone

            return OpenAiBackbone(config.backbone)
        case "anthropic":
            from openmaia.backbones.anthropic_server import AnthropicBackbone

            return AnthropicBackbone(config.backbone)
        case kind:
            raise _unknown("backbone.kind", kind, "scripted", "replay", *SERVED)


def refuse_own_eyes(config: Config) -> None:
    if config.backbone.eyes == config.target.network:
        raise UsageError(
            f"backbone.eyes={config.backbone.eyes!r} is the network under study; the experimenter and the judge must see "
            "with another one, such as efficientnet_lite2"
        )


def backbone_name(config: Config) -> str:
    """As it stands in records: the scripted experimenter is named with the eyes it sees through."""
    match config.backbone.kind:
        case "scripted":
            return f"scripted (no language model; eyes: {config.backbone.eyes})"
        case "vllm" | "openai" | "anthropic":
            return f"{config.backbone.model} ({config.backbone.kind})"
        case kind:
            return kind


def services(config: Config, store: ExemplarStore) -> Services:
    """All of them in this process, each call measured."""
    ledger, gpus = Ledger(), config.pools
    return Services(
        target=MeasuredTarget(target(config), ledger, gpus.target.num_gpus),
        exemplars=store,
        generator=MeasuredGenerator(generator(config), ledger, gpus.generator.num_gpus),
        editor=MeasuredEditor(editor(config), ledger, gpus.editor.num_gpus),
        backbone=MeasuredBackbone(backbone(config), ledger, gpus.backbone.num_gpus),
        ledger=ledger,
    )


def options(config: Config) -> Options:
    box = config.sandbox
    return Options(
        config=to_dict(config),
        backbone=backbone_name(config),
        run_seed=config.seed,
        soft_turns=config.limits.soft_turns,
        turns=config.limits.turns,
        minutes=config.limits.minutes,
        tokens=config.limits.tokens,
        reply_tokens=config.limits.reply_tokens,
        images_per_call=config.limits.images_per_call,
        sandbox=SandboxLimits(
            seconds=box.seconds,
            cpu_seconds=box.cpu_seconds,
            memory_mb=box.memory_mb,
            processes=box.processes,
            output_bytes=box.output_bytes,
            scratch_mb=box.scratch_mb,
            frame_mb=box.frame_mb,
        ),
        allow_none=box.allow_none,
        user_tools=user_tools(config.tools),
        evidence=vars(config.task.evidence),
        without=tuple(config.without),
    )


def user_tools(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        module, colon, attribute = name.partition(":")
        try:
            tool = getattr(importlib.import_module(module), attribute) if colon else None
        except (ImportError, AttributeError) as error:
            raise UsageError(f"tools: {name!r} cannot be imported: {error}") from error
        if not callable(tool):
            raise UsageError(f"tools: {name!r} is no function; expected package.module:function")
        if attribute in found or hasattr(Tools, attribute):
            raise UsageError(f"tools: there is another tool named {attribute!r}; give {name!r} a name of its own")
        found[attribute] = tool
    return found


def library(config: Config, say: Say = lambda line: None) -> Library:
    """The pictures, fetched at the first call. Raises UsageError for a folder that is missing or holds none."""
    given, cache = config.pictures.folder, Path(config.paths.cache).expanduser()
    if config.pictures.kind != "packages" and not given:
        raise UsageError(
            f"pictures.kind={config.pictures.kind} but pictures.folder is empty; say where the pictures are"
        )
    match config.pictures.kind:
        case "packages":
            from openmaia.pictures.packages import fetch

            found = Library.open(fetch(cache, say))
        case "folder":
            found = Library.open(Path(given).expanduser())
        case "webdataset" | "parquet" as kind:
            from openmaia.pictures.archives import Archives

            archives = Archives.find(kind, given)
            found = Library.of(archives, archives.root, archives.kept(cache))
        case kind:
            raise _unknown("pictures.kind", kind, "packages", "folder", "webdataset", "parquet")
    if found.left_out:
        say(f"what is no usable picture of {found.root} was skipped: {found.left_out}")
    return found


def _unknown(key: str, given: str, *known: str) -> UsageError:
    return UsageError(f"{key}={given!r} is not known; expected {' or '.join(known)}")
