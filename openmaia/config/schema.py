"""The schema of every config file. Defaults are defined only here and in the configs of components.

The sections of `config/machine.py` may change on resume; all others say what is measured, and may not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from openmaia.config.machine import (
    POOLS,
    TEST_GENERATOR,
    JobConfig,
    PathsConfig,
    PoolsConfig,
    PricesConfig,
    RayConfig,
    TrackingConfig,
)
from openmaia.config.studies import BiasConfig, EvaluateConfig, SpuriousConfig
from openmaia.core.components import (
    ALIASES,
    BackboneConfig,
    EditorConfig,
    GeneratorConfig,
    PicturesConfig,
    TargetConfig,
    ViewerConfig,
    WriterConfig,
    component,
    of_config,
    within,
)


@dataclass
class ExemplarsConfig:
    """`exemplars`: the dataset images that excite a unit most."""

    dataset: str = ""
    """Name of the folder in which these exemplars are stored. Empty: `pictures.kind`. Set it to keep exemplars of
    several datasets."""
    folder: str = ""
    """A folder of images from which all exemplars are taken. Empty: the explore split of `pictures`."""
    k: int = 15
    """Number of top exemplars per unit."""
    quantile: float = within(0.99, zero=True, most=1)
    """The threshold of a unit's masks, as a quantile of its activations over all positions of all images."""


@dataclass
class BankConfig:
    """`bank`: images that are measured on all units once, and that every agent may look up with `tools.bank`."""

    images: int = within(0, most=100_000)
    """Number of images. 0: there is no bank, and no tool of this name."""
    prompts: str = ""
    """A text file with a prompt on each line. Empty: the words that the generator draws and pairs of them, or for a
    generator that draws anything a list of this package. Prompts are repeated, with other seeds, until there are
    `images` of them."""
    folder: str = ""
    """A folder of captioned photographs that are taken in place of drawn images. Empty: the generator draws."""
    k: int = 15
    """Number of images that are kept for each unit: so many that excite it most, and so many that excite it least."""
    shown: int = within(5, zero=True)
    """Number of images, with what they were drawn from, that the agent sees at the beginning: those that excite the unit
    most."""
    words: int = within(5, zero=True)
    """Number of words of the prompts that the agent gets as its first hypotheses: those that tell best how much an image
    excites the unit, each with its AUC."""

    def problems(self) -> Iterator[str]:
        """Yields what contradicts itself."""
        if self.prompts and self.folder:
            yield (
                f"bank.prompts={self.prompts} and bank.folder={self.folder}: images are drawn or photographs are taken; give one"
            )
        if self.shown > self.k:
            yield f"bank.shown={self.shown} is above bank.k={self.k}, the images that are kept; lower the one or raise the other"


@dataclass
class SharedConfig:
    """`shared`: images that agents draw, measured on all units of the layer and kept beside the run."""

    images: int = within(0, most=100_000)
    """Largest number of images that are kept of each investigation: the first ones that it drew, without those that another
    one has kept before. 0: none."""
    look_up: bool = False
    """Whether agents may look them up with `tools.shared`. Then each record depends on which investigations ended before it."""


@dataclass
class EvidenceConfig:
    """`task.evidence`: the evidence that an answer of the agent needs before it is accepted.

    If a key is null, the agent's task determines its value. If it is 0, nothing is required.
    """

    experiments: int | None = None
    """Number of different experiments that measured the unit on at least one image and ended without an exception."""
    labels: int | None = None
    """1: an answer is sent back, once, if it has a label of which no experiment has measured an image."""
    controls: int | None = None
    """Number of different negative controls for each hypothesis that the answer keeps: images that should not excite
    the unit if the hypothesis is true."""
    replicates: int | None = None
    """Number of different images measured for each hypothesis that the answer keeps, negative controls not counted."""
    words: int | None = None
    """Largest number of words of a label. Answers with longer labels are sent back, at most twice."""
    drawable: int | None = None
    """1: an answer is sent back, at most twice, if it has a label that the generator cannot draw."""
    confirm: int | None = None
    """Number of new images of the final labels on which the program tests the answer. It adds as many near misses: the
    same scenes with one thing changed, so that the label no longer holds."""
    rounds: int | None = None
    """Number of answers that are sent back at most because they fail that test: the near misses of a label excite the
    unit as much as its images, or its images do not excite it. The agent gets the images and their activations, and
    goes on within the same limits."""


@dataclass
class HypothesesConfig:
    """`task.hypotheses`: what the agent is told of its own hypotheses."""

    states: bool = False
    """Whether the agent reads, after an experiment that names hypotheses (`hypothesis="H1"`, `"not H1"`), which of its list
    are supported, refuted or open by the images measured so far."""


@dataclass
class TaskConfig:
    """`task`: what the agent is asked to do."""

    name: str = "description"
    """A task of this package, or a folder with your own prompts."""
    effects: bool = False
    """Whether the agent may ask what its unit does to the classes of the network, with `system.effect` and
    `system.drives`, and name effects in its answer. For units of a classifier below its output."""
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    hypotheses: HypothesesConfig = field(default_factory=HypothesesConfig)


@dataclass
class LimitsConfig:
    """`limits`: bounds of one investigation."""

    soft_turns: int = 10
    """Turns after which the agent is asked for its final answer."""
    turns: int = 14
    """Largest number of turns."""
    minutes: float = 30.0
    """Longest total time of service calls and experiments, with the answering of their calls. Time in queues does not
    count, so that the limit means the same on a laptop and on a busy cluster."""
    wall_minutes: float = 0.0
    """Longest duration by the clock, time in queues included; 0: no such limit."""
    tokens: int = 2_000_000
    """Largest number of prompt and generated tokens, summed over all turns. Cached prompt tokens count as well."""
    budget: float = within(0.0, zero=True)
    """Largest cost in US dollars; 0: no such limit. The agent is asked for its answer when what is left may pay for one more
    turn only. The test of its description is not included."""
    reply_tokens: int = 4096
    """Longest reply in tokens."""
    images_per_call: int = 128
    """Largest number of images in one call of a tool."""

    def problems(self) -> Iterator[str]:
        """Yields what contradicts itself."""
        if self.soft_turns > self.turns:
            yield (
                f"limits.soft_turns={self.soft_turns} is above limits.turns={self.turns}: the agent is asked for its answer "
                "at soft_turns, so make it the smaller one"
            )


@dataclass
class SandboxConfig:
    """`sandbox`: bounds of the code that the agent writes. They may change when a run is resumed."""

    seconds: float = 60.0
    """Longest duration of an experiment. Time in which it waits for services does not count. What its calls cost the
    process that decodes, checks and encodes their images has the same limit of its own, in CPU time."""
    cpu_seconds: int = 600
    """CPU time in seconds of all experiments of an investigation together."""
    memory_mb: int = 1024
    """Memory of each process in MiB."""
    output_bytes: int = 64_000
    """Longest output of an experiment in bytes. Printed and displayed text together never take more than a quarter of
    `backbone.context_tokens`."""
    allow_none: bool = False
    """Runs the code without confinement on a machine that does not support it."""


@dataclass
class Config:
    """All keys of a config."""

    name: str = MISSING
    """Name of the run directory."""
    units: str = MISSING
    """The units to investigate: `layer4=122,210:layer3=5-31`, `layer4=random:20`, `random:20` (of each layer), `all`,
    a JSON file {layer: [index, …]}, or a table (.csv, .tsv) with the columns layer and unit. `layer4/122` means the
    same as `layer4=122`."""
    seed: int = 0
    """Seed of everything random."""
    replicates: int = within(1, most=10_000)
    """Investigations per unit."""
    tools: list[str] = field(default_factory=list[str])
    """Functions of yours that the agent may call, each as `package.module:function`."""
    without: list[str] = field(default_factory=list[str])
    """Tools that the agent does not get, such as `[text2image, edit_images]`."""
    target: TargetConfig = field(default_factory=TargetConfig)
    pictures: PicturesConfig = field(default_factory=PicturesConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)
    bank: BankConfig = field(default_factory=BankConfig)
    shared: SharedConfig = field(default_factory=SharedConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    editor: EditorConfig = field(default_factory=EditorConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    viewer: ViewerConfig = field(default_factory=ViewerConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    bias: BiasConfig = field(default_factory=BiasConfig)
    spurious: SpuriousConfig = field(default_factory=SpuriousConfig)
    retries: int = within(1, zero=True)
    """Attempts for a failed investigation after the first one, within one command."""
    budget: float = within(0.0, zero=True)
    """Largest cost of the run in US dollars, with tests and failed calls; 0: no such limit. At its end no investigation begins,
    and those that run are asked for their answers. A larger one continues the run. Of several sweeps, each has this one."""
    prices: PricesConfig = field(default_factory=PricesConfig)
    pools: PoolsConfig = field(default_factory=PoolsConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    job: JobConfig = field(default_factory=JobConfig)


def test_generator(config: Config) -> GeneratorConfig:
    """Returns the generator of test images: `evaluate.generator`, or else `generator`."""
    return model_of(config, TEST_GENERATOR)


def pools_by_role(config: Any) -> dict[str, str]:
    """Returns the name of the pool that serves each role: an editor may stand for the generator, and the generator draws the
    test images if no other one does.

    Args:
        config: A `Config`, or a `DictConfig` with its keys.
    """
    editing = component("editor", config.editor.kind, "editor").stands_for or "editor"
    drawing_tests = TEST_GENERATOR if config.evaluate.generator is not None else "generator"
    return {role: role for role in POOLS} | {"editor": editing, TEST_GENERATOR: drawing_tests}


def pool_names(config: Config) -> tuple[str, ...]:
    """Returns the names of the pools that a config needs."""
    return tuple(dict.fromkeys(pools_by_role(config).values()))


def model_of(config: Config, role: str) -> Any:
    """Returns the section of the model that serves a role."""
    pool = pools_by_role(config)[role]
    return config.evaluate.generator if pool == TEST_GENERATOR else getattr(config, pool)


def prompt_writer(config: Config) -> WriterConfig:
    """Returns `evaluate.writer`, or else the backbone if it reads prompts, or else the rules that go with the config."""
    if config.evaluate.writer is not None:
        return config.evaluate.writer
    if of_config(config.backbone).reads_prompts:
        return config.backbone
    return rules(config)


def rules(config: Config) -> WriterConfig:
    """Returns the rules that write prompts without a language model: those that the backbone names, or else the generator of
    test images, or else the first kind."""
    named = (of_config(each).rules(each) for each in (config.backbone, test_generator(config)))
    return next((each for each in named if each is not None), WriterConfig(kind=next(iter(ALIASES["writer"]))))
