"""Components: one class with its config, in one file, for each kind of a service. The program never asks which kind it has.

A kind is an alias, or `package.module:Class` for a component of the user, from an installed package or the current folder.
"""

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self, cast

from omegaconf import MISSING

from openmaia.core.checks import Check
from openmaia.core.errors import UsageError
from openmaia.core.importing import add_folder, import_object
from openmaia.core.secrets import Secret
from openmaia.core.units import OUTPUT, TargetInfo, Unit

ALIASES: Mapping[str, Mapping[str, str]] = {
    "target": {
        "network": "openmaia.models.targets.network:StudiedNetwork",
        "clip": "openmaia.models.targets.clip:PromptedClip",
        "synthetic": "openmaia.models.targets.synthetic.component:Synthetic",
        "closed_form": "openmaia.offline.closed_form.component:ClosedForms",
        "scene_units": "openmaia.offline.scene_units.component:SceneUnits",
    },
    "pictures": {
        "packages": "openmaia.offline.packaged.component:PackagedPictures",
        "folder": "openmaia.datasets.pictures.folder:FolderPictures",
        "hf": "openmaia.datasets.pictures.huggingface:HuggingFacePictures",
        "scenes": "openmaia.offline.scenes.pictures:ScenePictures",
        "python": "openmaia.datasets.pictures.passed:PassedPictures",
    },
    "generator": {
        "collage": "openmaia.offline.collage.host:CollageGenerator",
        "scenes": "openmaia.offline.scenes.component:SceneGenerator",
        "diffusers": "openmaia.models.generators.diffusion:DiffusersGenerator",
        "openai": "openmaia.models.generators.images_api:ApiGenerator",
    },
    "editor": {
        "collage": "openmaia.offline.collage.host:CollageEditor",
        "scenes": "openmaia.offline.scenes.component:SceneEditor",
        "diffusers": "openmaia.models.generators.diffusion:DiffusersEditor",
        "generator": "openmaia.models.generators.shared:SharedEditor",
        "openai": "openmaia.models.generators.images_api:ApiEditor",
    },
    "backbone": {
        "scripted": "openmaia.offline.experimenter.components:Scripted",
        "searcher": "openmaia.offline.searcher.component:SceneSearcher",
        "replay": "openmaia.models.backbones.replay:ReplayBackbone",
        "labels": "openmaia.interop.label_backbone:LabelBackbone",
        "vllm": "openmaia.models.backbones.vllm.component:Vllm",
        "openai": "openmaia.models.backbones.openai_api:OpenAi",
        "anthropic": "openmaia.models.backbones.anthropic_api:Anthropic",
        "python": "openmaia.models.backbones.passed:PassedBackbone",
        "external": "openmaia.models.backbones.external:External",
    },
    "viewer": {
        "scripted": "openmaia.offline.experimenter.components:ScriptedViewer",
        "openai": "openmaia.models.backbones.openai_api:OpenAi",
        "anthropic": "openmaia.models.backbones.anthropic_api:Anthropic",
        "scenes": "openmaia.offline.viewer.component:SceneViewer",
        "none": "openmaia.models.backbones.viewer:NoViewer",
    },
    "writer": {
        "rules": "openmaia.offline.evaluation.rules:Rules",
        "scene_rules": "openmaia.offline.searcher.rules:SceneRules",
        "vllm": "openmaia.models.backbones.vllm.component:Vllm",
        "openai": "openmaia.models.backbones.openai_api:OpenAi",
        "anthropic": "openmaia.models.backbones.anthropic_api:Anthropic",
        "replay": "openmaia.models.backbones.replay:ReplayBackbone",
    },
    "judge": {
        "detector": "openmaia.evaluation.judging.detector:Detector",
        "eyes": "openmaia.offline.experimenter.components:SeeingJudge",
        "scenes": "openmaia.offline.scenes.judge:SceneGraphs",
        "none": "openmaia.evaluation.judging.detector:NoJudge",
    },
}
"""By role. The first kind of a role is its default, unless the backbone names another one (`Component.companions`)."""


def machine(default: Any, *, zero: bool = False, most: float | None = None) -> Any:
    """Returns a config field that says where and how fast a component runs. It may change when a run is resumed. See
    `within` for the range of a number."""
    return _field(default, {"machine": True, "zero": zero, "most": most})


def within(default: Any, *, zero: bool = False, most: float | None = None) -> Any:
    """Returns a config field for a number.

    Args:
        default: A number has to be above 0 if its default is.
        zero: Whether it may be 0 nevertheless.
        most: The largest value. None: any that is finite.
    """
    return _field(default, {"zero": zero, "most": most})


def _field(default: Any, metadata: dict[str, Any]) -> Any:
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: cast(Any, default).copy(), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class ComponentConfig:
    """The keys of a config section that holds a component."""

    role: ClassVar[str]
    kind: str = MISSING

    def __reduce__(self) -> Any:
        # Another process may unpickle a config before anything else told it where the user's modules are.
        cls = type(self)
        return _restored, (_folder(cls), cls.__module__, cls.__qualname__, dict(vars(self)))


@dataclass
class TargetConfig(ComponentConfig):
    """`target`: what is studied: a network, or units of which it is known what they respond to."""

    role: ClassVar[str] = "target"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a target of yours."""
    name: str = MISSING
    """Name of the target in units, records and folders."""


@dataclass
class PicturesConfig(ComponentConfig):
    """`pictures`: the dataset of natural images, for exemplars and for tests."""

    role: ClassVar[str] = "pictures"
    kind: str = MISSING
    """An alias, or `package.module:Class` for images of yours (`openmaia.datasets.library.ImageCollection`)."""
    limit: int = 0
    """Largest number of images of the explore split (or of `exemplars.folder`) that exemplars are computed from. 0: all
    of them."""


@dataclass
class GeneratorConfig(ComponentConfig):
    """`generator`, `evaluate.generator`: the text-to-image model."""

    role: ClassVar[str] = "generator"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a generator of yours."""
    size: int = 224
    """Side of the images in pixels."""


@dataclass
class EditorConfig(ComponentConfig):
    """`editor`: the instruction-based image editor. An edited image has the size of the original."""

    role: ClassVar[str] = "editor"
    kind: str = MISSING
    """An alias, or `package.module:Class` for an editor of yours."""


@dataclass
class ViewerConfig(ComponentConfig):
    """`viewer`: what describes images in words for a backbone with `backbone.sees=text`. A backbone can do that, too."""

    role: ClassVar[str] = "viewer"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a viewer or backbone of yours."""


@dataclass
class WriterConfig(ComponentConfig):
    """`evaluate.writer`: what writes the test prompts. A backbone can do that, too."""

    role: ClassVar[str] = "writer"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a writer or backbone of yours."""


@dataclass
class BackboneConfig(ViewerConfig, WriterConfig):
    """`backbone`: the model that plays the agent."""

    role: ClassVar[str] = "backbone"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a backbone of yours."""
    sees: Literal["images", "text"] = "images"
    """`images`: displayed images are sent to the model; `text`: for a model that takes no images, they are replaced by
    descriptions that the model in the section `viewer` writes."""
    outage_minutes: float = machine(30.0)
    """Longest time for which investigations wait for a server that is away, is overloaded or limits their rate, before they
    fail. It holds for the images APIs of `generator` and `editor`, too."""


@dataclass
class JudgeConfig(ComponentConfig):
    """`evaluate.judge`: what decides whether an image shows what a label names."""

    role: ClassVar[str] = "judge"
    kind: str = MISSING
    """An alias, or `package.module:Class` for a judge of yours."""


ROLES: Mapping[str, type[ComponentConfig]] = {
    each.role: each
    for each in (
        TargetConfig,
        PicturesConfig,
        GeneratorConfig,
        EditorConfig,
        BackboneConfig,
        ViewerConfig,
        WriterConfig,
        JudgeConfig,
    )
}
"""The config of each role, from which the configs of its components inherit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a component's own section of the config does not say."""

    key: str
    """The section, such as `evaluate.generator`, for messages."""
    pool: str = ""
    """The name of the pool whose replicas hold it."""
    gpus: float = 0.0
    """GPUs of each replica."""
    cache: Path = Path()
    """The folder of downloads."""
    pictures: Callable[[], Any] = lambda: None
    """Opens the image dataset of the run."""
    say: Callable[[str], None] = lambda line: None
    """Receives messages for the user about slow steps."""
    generator: GeneratorConfig | None = None
    """For an editor: the generator whose images it edits."""
    target: "TargetConfig | None" = None
    viewer: "ViewerConfig | None" = None
    waits: bool = False
    """Whether the program waits for a server that is slow or overloaded: that is then a note and no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How a replica uses its GPUs."""

    cards: int = 1
    """GPUs among which it divides the model."""
    fraction: float = 1.0
    """Share of their memory that it uses."""
    measures: bool = False
    """Whether it measures the GPU's used memory while it loads, so that no other model may load meanwhile."""
    cached: tuple[str, int] | None = None
    """(model, tokens): a conversation whose KV cache it has to hold beside the weights."""


class Component:
    """The base of all components. A component also implements the Protocol of its service (`openmaia.core.services`)."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    is_served: ClassVar[bool] = False
    """Whether the model is on a server: one process without a GPU then makes all calls."""
    price_keys: ClassVar[tuple[str, ...]] = ()
    """For a model on a server: the config keys with its prices that must be known if there is a budget."""
    address: ClassVar[str] = ""
    """For a model on a server: the address of the vendor, used if `base_url` is empty."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Modules with large libraries that `build` imports. A replica imports them before it waits for its turn to load."""
    is_absent: ClassVar[bool] = False
    """For a viewer or a judge: whether it stands for none."""
    stands_for: ClassVar[str] = ""
    """The role whose model does the work of this component, which has neither a model nor a pool of its own; empty otherwise."""
    reads_prompts: ClassVar[bool] = True
    """For a backbone: whether it is a language model, which can also write test prompts and judge images."""
    experiments: ClassVar[bool] = True
    """For a backbone: whether it runs experiments."""
    is_recorded: ClassVar[bool] = False
    """For a backbone: whether its replies are those of a file, whatever is asked. Building it checks the file."""
    asks_viewer: ClassVar[bool] = False
    """For a backbone: whether the viewer answers what tools ask about images, even if the backbone takes images."""
    companions: ClassVar[Mapping[str, str]] = {}
    """For a backbone: the kinds of other sections that go with it, by section. They are the defaults of a config with this
    backbone."""
    tasks: ClassVar[frozenset[str] | None] = None
    """For a backbone: the tasks of this package that it can do. None: any task, those of the user included."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @classmethod
    def build(cls, config: Any, site: Site) -> Self:
        """Loads the model. Raises UsageError if it cannot be loaded; the message names the config key."""
        return cls(config)

    def prepare_edits(self) -> None:
        """For a generator with a method `edit` that is about to be the editor, too. Raises UsageError if its model cannot edit."""

    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        """Yields what is wrong with the values of a config. Called at every load: looks at nothing else."""
        yield from ()

    @staticmethod
    def checks(config: Any, site: Site) -> Iterator[Callable[[], Check]]:
        """Yields what is to be looked at on this machine and the network before a run. Loads no model."""
        yield from ()

    @staticmethod
    def packages(config: Any, site: Site) -> Iterator[tuple[str, str, str]]:
        """Yields the optional packages that it needs: (setting, such as `quantize=nf4`, package, command that installs it)."""
        yield from ()

    @staticmethod
    def conflicts(config: Any, site: Site) -> Iterator[tuple[str, str]]:
        """Yields the packages that must not be installed: (setting that they do not fit, package)."""
        yield from ()

    @staticmethod
    def modules(config: Any, site: Site) -> Iterator[tuple[str, str]]:
        """Yields the code of the user that the config names: (key, `package.module:attribute`)."""
        yield from ()

    @staticmethod
    def files(config: Any, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        """Yields the files and folders that it reads on the machine that runs it: (key, path, which of both)."""
        yield from ()

    @staticmethod
    def weights(config: Any, site: Site) -> Iterator[Any]:
        """Yields the sources of the model's weights (`openmaia.models.weights.WeightSource`)."""
        yield from ()

    @staticmethod
    def title(config: Any) -> str:
        """Returns the name of the component for people."""
        return getattr(config, "model", "") or str(config.kind)

    @staticmethod
    def remark(config: Any) -> str:
        """Returns what readers of results should know, such as that its images cannot be made again."""
        return ""

    @classmethod
    def withheld(cls, config: Any) -> str:
        """Returns why images of it may not be published, unless the user states a licence: the end of a sentence about
        them. Empty if they may."""
        return "whose licence is not known" if issubclass(cls.Config, PicturesConfig) else ""

    @staticmethod
    def concurrency(config: Any) -> int:
        """Returns how many conversations a replica of a backbone answers at once."""
        return getattr(config, "concurrency", 1)

    @staticmethod
    def vocabulary(config: Any) -> Any:
        """Returns the `openmaia.agent.vocabulary.Vocabulary` of a generator that draws certain words only. None: it draws
        anything."""
        return None

    @staticmethod
    def context_tokens(config: Any) -> int:
        """Returns the longest conversation of a backbone in tokens, the next reply included. 0: there is no limit."""
        return getattr(config, "context_tokens", 0)

    @staticmethod
    def judge(config: Any) -> "JudgeConfig | None":
        """For a backbone: returns the judge of its tests, if the config names none and no language model writes their prompts.
        For pictures: the judge that knows what they show without looking. Each process builds it."""
        return None

    @staticmethod
    def rules(config: Any) -> "WriterConfig | None":
        """For a backbone or a generator: returns the writer whose rules have its words, if the config names none and no language
        model writes. A backbone's comes first. None: it has no words of its own."""
        return None

    @staticmethod
    def gpu_use(config: Any) -> GpuUse:
        return GpuUse()

    @staticmethod
    def version(config: Any) -> str:
        """Returns a text that changes whenever equal requests get other answers, for what draws by code. Caches and banks
        know it. Empty for a model, which its config names."""
        return ""

    @staticmethod
    def is_repeatable(config: Any) -> bool:
        """Returns whether equal requests may be answered from a cache."""
        return True


class TargetComponent(Component):
    """The base of all targets. What is built implements `openmaia.core.services.Target` and `openmaia.exemplars.passes.Readable`."""

    Config: ClassVar[type[ComponentConfig]] = TargetConfig
    is_network: ClassVar[bool] = False
    """Whether it is a PyTorch module that `network` loads. Its units can then be ablated, and it can be fine-tuned."""
    is_detector: ClassVar[bool] = False
    """Whether its units are made of the detector that may judge images, too."""

    @staticmethod
    def layers(config: Any) -> Sequence[str]:
        """Returns the layers that the config chooses. Empty if it chooses none, so that all are read."""
        return getattr(config, "layers", ())

    @classmethod
    def outline(cls, config: Any, site: Site) -> TargetInfo | None:
        """Returns what is known without loading weights; the digest may be empty. Raises UsageError for an unknown
        layer."""
        return None

    @classmethod
    def survey(cls, config: Any, site: Site) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """Returns (the units of each layer that could be chosen, the reason why by module that cannot be a layer)."""
        made: Any = cls.build(config, site) if (known := cls.outline(config, site)) is None else None
        return (known or made.info()).layers, {}

    @staticmethod
    def network(config: Any, weights: str) -> Any:
        """Loads the network (`openmaia.models.targets.preprocess.TargetNetwork`) with weights, for one that `is_network`."""
        raise NotImplementedError

    @staticmethod
    def truths(config: Any, info: TargetInfo) -> Mapping[Unit, tuple[str, ...]]:
        """Returns what units are known to respond to: each text names one thing that excites the unit."""
        # The names of classes are what outputs respond to, for any classifier.
        # ImageNet's names explain homonyms in brackets: "drake (male duck)".
        names = [re.sub(r"\s*\(.*?\)", "", each).strip() for each in info.classes]
        return {Unit(target=info.name, layer=OUTPUT, index=n): (each,) for n, each in enumerate(names) if each}

    @staticmethod
    def concepts(config: Any) -> Mapping[str, tuple[tuple[str, ...], ...]]:
        """Returns the concepts of units that the config defines, by layer, for label folders like those of MAIA's data."""
        return {}

    @staticmethod
    def why_no_classes(config: Any) -> str:
        """Returns why its units are no classes of a classifier, for messages. Empty if they are."""
        return f"target.kind={config.kind} has no classes; give a classifier as target.network"

    @staticmethod
    def library_weights(config: Any) -> str:
        """Returns the name of the network whose weights torchvision or timm provides. Empty if neither does."""
        return ""

    @staticmethod
    def exemplar_facts(config: Any) -> Mapping[str, Any]:
        """Returns what exemplars depend on besides `info`. Stored ones with other facts are refused."""
        return {"component": identity(config)}

    @staticmethod
    def published_name(config: Any) -> str:
        """Returns the name under which publications report on it. Empty if it is not what they studied."""
        return ""


def target_class(config: TargetConfig) -> type[TargetComponent]:
    """Returns the class of the target that a config describes."""
    return cast(type[TargetComponent], of_config(config))


_BASES: Mapping[str, type[Component]] = {"target": TargetComponent}


def component(role: str, kind: str, key: str = "") -> type[Component]:
    """Returns the class of a kind.

    Args:
        key: The config section, for messages. Empty: the role.

    Raises:
        UsageError: The kind is unknown, cannot be imported, or is no component of the role.
    """
    key = f"{key or role}.kind"
    name = ALIASES[role].get(kind, kind)
    if ":" not in name:
        known = ", ".join(alias for alias in ALIASES[role])
        raise UsageError(f"{key}={kind!r} is not known; expected {known}, or package.module:Class of yours")
    found = import_object(name, key)
    base = _BASES.get(role, Component)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UsageError(
            f"{key}={kind!r} is no component; let the class inherit from openmaia.core.components.{base.__name__}"
        )
    if config_class(found, role) is None:
        raise UsageError(
            f"{key}={kind!r} is no {role}; let its Config inherit from openmaia.core.components.{ROLES[role].__name__}"
        )
    return found


def config_class(found: type[Component], role: str) -> type[ComponentConfig] | None:
    """Returns a component's own config, or that of its role. None if its own belongs to another role."""
    own = found.Config
    if own is ComponentConfig:
        return ROLES[role]
    return own if issubclass(own, ROLES[role]) and dataclasses.is_dataclass(own) else None


def of_config(config: Any, key: str = "") -> type[Component]:
    """Returns the class of the component that a config section describes."""
    return component(cast(Any, type(config)).role, config.kind, key)


def build(config: ComponentConfig, site: Site) -> Any:
    """Loads the component that a config section describes. Raises UsageError as `Component.build`."""
    return of_config(config, site.key).build(config, site)


def stored(section: Mapping[str, Any], role: str) -> tuple[type[Component], Any] | None:
    """Reads the section of a stored config. None for a class of the user: opening a run imports nothing that it names."""
    kind = str(section.get("kind"))
    return (component(role, kind), SimpleNamespace(**section)) if kind in ALIASES[role] else None


def stored_remark(section: Mapping[str, Any], role: str) -> str:
    """Returns `Component.remark` for the section of a stored config."""
    found = stored(section, role)
    return found[0].remark(found[1]) if found else ""


def is_users(kind: str) -> bool:
    """Returns whether a kind names a class of the user."""
    return ":" in kind


def machine_keys(config: type[ComponentConfig]) -> frozenset[str]:
    """Returns the keys that may change when a run is resumed."""
    return frozenset(each.name for each in dataclasses.fields(config) if each.metadata.get("machine"))


def identity(config: ComponentConfig) -> str | None:
    """Returns a text that is equal for components that answer alike: all keys but machine keys, the version, and the user's
    source.

    None if the component says that equal requests may have different answers.
    """
    found = of_config(config)
    if not found.is_repeatable(config):
        return None
    skipped = machine_keys(type(config))
    values = {each.name: getattr(config, each.name) for each in dataclasses.fields(config) if each.name not in skipped}
    more = {"source": _source_digest(found) if is_users(config.kind) else "", "version": found.version(config)}
    facts = {"role": config.role, **_redacted(values), **{name: text for name, text in more.items() if text}}
    return json.dumps(facts, sort_keys=True)


def _redacted(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.stored
    if isinstance(value, dict):
        return {name: _redacted(part) for name, part in cast("dict[str, Any]", value).items()}
    return [_redacted(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


def _source_digest(found: type) -> str:
    path = getattr(sys.modules[found.__module__], "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""


def _folder(cls: type) -> str:
    # The folder from which a class of the user was imported; empty for a class of ours.
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if cls.__module__.startswith("openmaia.") or not path:
        return ""
    depth = cls.__module__.count(".") + (Path(path).name == "__init__.py")
    return str(Path(path).resolve().parents[depth])


def _restored(folder: str, module: str, name: str, values: dict[str, Any]) -> Any:
    if folder:
        add_folder(folder)
    cls = import_object(f"{module}:{name}", "kind")
    made = cls.__new__(cls)
    made.__dict__.update(values)
    return made
