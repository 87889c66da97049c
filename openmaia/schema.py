"""The schema of every config file: typed dataclasses, and the only place of defaults.

Machine sections (`ray`, `pools`, `paths`, `job`, `tracking`) say where and how wide a run runs, and who looks on; all the others
say what is measured, and a run directory refuses to go on under other values of those.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

MACHINE_SECTIONS = ("ray", "pools", "paths", "job", "retries", "tracking")
POOLS = ("target", "generator", "editor", "backbone")


@dataclass
class SyntheticConfig:
    """Synthetic units of one's own, in place of a preset's list."""

    mode: str = ""
    """mono: one concept; or: either of two; and: the first, given the second."""
    labels: list[str] = field(default_factory=list[str])
    """The concepts of one unit, such as [cheese, lemon]."""
    folder: str = ""
    """In place of labels, many units: a folder of pictures for each, named LABEL or LABEL1_LABEL2, as published."""


@dataclass
class TargetConfig:
    kind: str = "network"
    """network: an nn.Module read through hooks; synthetic: concepts found by Grounding DINO and SAM, with known truth;
    closed_form: units computed from the pixels, with known truth."""
    name: str = MISSING
    """Names the target in units, records and folders."""
    network: str = ""
    """A name this package knows (resnet152, dino_vits8, clip_rn50, efficientnet_lite0, ...), torchvision:NAME,
    timm:NAME, hf:ID, or package.module:factory of your own."""
    weights: str = ""
    """A checkpoint to load in place of the network's own: safetensors, or a pickle of tensors only."""
    layers: list[str] = field(default_factory=list[str])
    """Named modules of the network; `output` is its final output, read as class probabilities."""
    preprocess: str = "weights"
    """weights: the network's own preprocessing; published: as the published MAIA code does (shorter side, no crop)."""
    size: int = 0
    """Pixels per side of the network's input; 0: what its preprocessing says."""
    directions: dict[str, str] = field(default_factory=dict[str, str])
    """Layer -> a safetensors file with `weight` (units, channels) and perhaps `bias`: the layer `LAYER/directions` then
    has a unit for each row, such as a direction or a feature of a sparse autoencoder."""
    detector: str = "IDEA-Research/grounding-dino-tiny"
    """synthetic only."""
    segmenter: str = "facebook/sam-vit-huge"
    """synthetic only; empty: boxes are the masks."""
    units: str = "repo"
    """synthetic only: `repo` or `paper`, where the text and the published code differ."""
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    """synthetic only: other units than those of the papers, under the same formulas."""
    family: str = "small"
    """closed_form only: `small`, twelve exact units; `held_out` and `development`, hundreds of graded, noisy ones;
    `biased`, 96 classifiers, half of them with a planted bias."""
    shuffled: bool = False
    """closed_form only, a control: every picture gets the answer to another one, so that nothing can be found out."""


@dataclass
class PicturesConfig:
    kind: str = "packages"
    """packages: photographs and cut-outs that ship in Debian and pip packages; folder: any tree of your own;
    webdataset: tar shards; parquet: files with a column of images."""
    folder: str = ""
    """A folder; for webdataset and parquet also a file, a glob, or a URL such as s3://bucket/shards."""
    limit: int = 0
    """At most this many pictures per half; 0 for all."""


@dataclass
class ExemplarsConfig:
    dataset: str = ""
    """Names the folder of the exemplars below the target's; empty: pictures.kind."""
    folder: str = ""
    """A tree of pictures to take all exemplars from; empty: the explore half of `pictures`."""
    k: int = 15
    quantile: float = 0.99
    """Over all positions of all pictures: the mask threshold of a unit."""


@dataclass
class DiffusionConfig:
    """A diffusers pipeline. steps: 0, guidance: below 0, for what the pipeline itself takes."""

    model: str = ""
    """A hub id or a folder."""
    transformer: str = ""
    """A repository of its own for the transformer, such as one that is quantized already."""
    text_encoder: str = ""
    """The same for the large text encoder (FLUX: T5)."""
    quantize: str = ""
    """nf4: transformer and large text encoder are quantized to 4 bits while they are loaded."""
    dtype: str = "bfloat16"
    steps: int = 0
    guidance: float = -1.0
    max_text_tokens: int = 256
    offload: bool = False
    """Parts wait in main memory until they are needed: slower, for cards that cannot hold all of them."""


@dataclass
class GeneratorConfig:
    kind: str = "collage"
    """collage: composes pictures from cut-outs, shapes and patterns; diffusers: a text-to-image model."""
    size: int = 224
    """Pixels per side."""
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)


@dataclass
class EditorConfig:
    kind: str = "collage"
    """collage: edits what the collage made; diffusers: an instruction-based editing model."""
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)


@dataclass
class VllmConfig:
    tensor_parallel: int = 1
    """GPUs of one node that share the model; pools.backbone.num_gpus has to be as large."""
    memory_fraction: float = 0.9
    """Of the share of each GPU that pools.backbone.num_gpus gives to a replica."""
    quantization: str = ""
    dtype: str = "auto"
    tokenizer_mode: str = "auto"
    eager: bool = False
    """No CUDA graphs and no compilation: starts sooner, answers slower."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of vLLM's engine by their names there."""


@dataclass
class BackboneConfig:
    kind: str = "scripted"
    """scripted: a deterministic experimenter, no language model; replay: the replies of an earlier record; vllm: a model
    on this cluster's GPUs; openai: any compatible server; anthropic: Anthropic's."""
    eyes: str = "efficientnet_lite2"
    """scripted only: the network, other than the target's, whose class evidence the experimenter sees with."""
    record: str = ""
    """replay only: a record (.parquet) or a published history.json."""
    model: str = ""
    """A hub id or a folder (vllm); the name the server knows it by (openai, anthropic)."""
    base_url: str = ""
    """openai, anthropic: another server than the maker's own. Keys come from OPENAI_API_KEY and ANTHROPIC_API_KEY."""
    temperature: float = 0.7
    top_p: float = 0.95
    context_tokens: int = 32768
    """A conversation that outgrows it loses its oldest images first, then its oldest experiment outputs."""
    images_per_prompt: int = 64
    concurrency: int = 32
    """Chats under way at once: per replica (vllm), altogether (openai, anthropic)."""
    timeout: float = 300.0
    """Seconds for one reply of a server."""
    tries: int = 6
    """Of one request to a server that is overloaded or cannot be reached."""
    vllm: VllmConfig = field(default_factory=VllmConfig)


@dataclass
class EvidenceConfig:
    """What an answer has to rest on. null: what the task says (its task.yaml); 0: nothing."""

    experiments: int | None = None
    """Experiments that showed the unit at least one image."""
    controls: int | None = None
    """Different negative controls for each hypothesis that survives."""
    replicates: int | None = None
    """Different images of each hypothesis that survives."""
    confirm: int | None = None
    """Images of the final labels, and as many near misses, with which the loop tests the answer itself."""


@dataclass
class TaskConfig:
    name: str = "description"
    """A task of this package, or a folder with your own prompts."""
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)


@dataclass
class LimitsConfig:
    soft_turns: int = 10
    """After this many turns the agent is asked for its final answer."""
    turns: int = 14
    minutes: float = 30.0
    tokens: int = 2_000_000
    """Prompt and generated tokens of one investigation together."""
    reply_tokens: int = 4096
    images_per_call: int = 128


@dataclass
class SandboxConfig:
    seconds: float = 60.0
    cpu_seconds: int = 600
    memory_mb: int = 1024
    processes: int = 1
    """With 1 the agent's code cannot start another process at all."""
    output_bytes: int = 64_000
    scratch_mb: int = 64
    frame_mb: int = 64
    allow_none: bool = False


@dataclass
class EvaluateConfig:
    preset: str = "labels"
    """labels: prompts written per label, with matched neutral ones; paper, repo, pairing: the published protocols, which
    need a language model as the writer."""
    n: int = 30
    """Positive and as many neutral images per description; paper and pairing make 7."""
    bootstrap: int = 2000
    pictures: int = 100
    """Photographs of the test half, for the random control and for detection; 0 leaves both out."""
    detect: int = 24
    """Of them, how many a judge marks for each description; 0 leaves detection out."""
    judge: str = "auto"
    """Who says what a picture shows. auto: the writer where it is a language model, otherwise the eyes of a scripted
    backbone; eyes: those in any case; detector: Grounding DINO, which also knows where, so that there is a mask IoU; none:
    nobody, and there is no detection."""
    detector: str = "IDEA-Research/grounding-dino-tiny"
    segmenter: str = ""
    """Of the judge `detector`, such as facebook/sam-vit-huge; empty: boxes are the regions."""
    writer: BackboneConfig = field(default_factory=lambda: BackboneConfig(kind="rules"))
    """Who writes the prompts. rules: no language model; vllm, openai, anthropic, replay: as for the backbone. Preset paper
    wants another model than the agent's."""


@dataclass
class BiasConfig:
    """`openmaia bias`: how what an agent claims is tested."""

    pairs: int = 40
    """Matched pictures with and without each claimed context."""
    smallest: float = 0.02
    """Difference of mean probabilities below which no bias is called supported."""
    rate: float = 0.05
    """Of false discoveries among the biases of a run that are supported (Benjamini and Hochberg)."""
    failures: int = 40
    """Pairs in which pictures are looked for that the classifier gets wrong, for each bias that stood; 0 for none."""
    detector: str = ""
    """A Grounding DINO by hub id or folder, which confirms that the class is there in pictures whose generator does not
    know. Empty: evaluate.judge does."""


@dataclass
class PoolConfig:
    replicas: int = 1
    max_batch: int = 16
    deadline: float = 600.0
    """Seconds after which a batch counts as a death and its replica is replaced."""
    max_waiting: int = 4096
    """Requests that may wait or be under way; callers wait with what is more, in the order in which they came."""
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    node_labels: dict[str, str] = field(default_factory=dict[str, str])
    """Replicas run on Ray nodes that have these labels (`ray start --labels`, or a worker group's `labels` in KubeRay)."""


@dataclass
class DrawingPoolConfig(PoolConfig):
    cache_mb: int = 256
    """Of pictures kept in memory and given to whoever asks for the same again; 0: each is drawn anew."""
    spill_mb: int = 1024
    """Of those pictures kept in the run's directory, for a run that is resumed; 0: in memory only."""


@dataclass
class PoolsConfig:
    target: PoolConfig = field(default_factory=PoolConfig)
    generator: DrawingPoolConfig = field(default_factory=DrawingPoolConfig)
    editor: DrawingPoolConfig = field(default_factory=DrawingPoolConfig)
    backbone: PoolConfig = field(default_factory=PoolConfig)


@dataclass
class RayConfig:
    address: str = "local"
    """local: a cluster of this run's own; auto: the one running on this machine; host:port or ray://…: that one, whose nodes
    this machine has to reach on all ports."""
    num_cpus: int = 0
    """Of a local cluster; 0 for what the machine has."""
    investigations: int = 4
    """Investigations under way at once."""
    investigations_per_process: int = 8
    """Investigations that share one process, each in a thread of its own: it saves memory and start-up."""
    cpus_per_investigation: float = 0.25
    memory_mb: int = 400
    """Declared per investigation, sandbox included."""
    exemplar_workers: int = 0
    """Processes that compute exemplars, each with its own copy of the network; 0 for one per core (eight at the most), or
    as many as the GPUs have room for."""
    save_seconds: float = 30.0
    """Of work on exemplars: the most that the death of a worker costs."""
    wait_seconds: float = 120.0
    """For nodes that are still joining a cluster that is too small for `pools`; a local cluster gets no more of them."""
    autoscaling: bool = False
    """The cluster grows when more is asked of it than it has: nothing is compared with what it has now."""


@dataclass
class JobConfig:
    """What `openmaia submit` asks SLURM or Kubernetes for."""

    nodes: int = 1
    cpus: int = 4
    """Of each node."""
    gpus: int = 0
    """Of each node."""
    memory_gb: int = 16
    """Of each node."""
    hours: float = 24.0


@dataclass
class TrackingConfig:
    kind: str = "none"
    """none; wandb: the run also appears in Weights & Biases."""
    mode: str = "online"
    """online; offline: written below the run directory, for `wandb sync`; disabled: as if kind were none."""
    project: str = "openmaia"
    entity: str = ""
    """A user or team; empty: the account's own."""
    name: str = ""
    """Of the run in W&B; empty: the run's own."""
    tags: list[str] = field(default_factory=list[str])
    every: float = 5.0
    """Seconds between two points of a live series."""
    start_seconds: float = 60.0
    """A tracker that has not started by then is refused."""
    finish_seconds: float = 60.0
    """How long the end of a run waits for W&B to take what is left."""


@dataclass
class SpuriousConfig:
    """`openmaia spurious`. The defaults are those of the MAIA paper's experiment on Spawrious O2O-Easy."""

    folder: str = ""
    """The Spawrious tree, the folder that holds spawrious224; empty: a tree of that layout is drawn by the generator."""
    classes: list[str] = field(default_factory=lambda: ["bulldog", "dachshund", "labrador", "corgi"])
    train_locations: list[str] = field(default_factory=lambda: ["desert", "jungle", "dirt", "snow"])
    """One for each class."""
    test_locations: list[str] = field(default_factory=lambda: ["dirt", "snow", "desert", "jungle"])
    """The same places in another order."""
    filler: str = "beach"
    """The place of the few training pictures that are not where their class usually is."""
    other_locations: list[str] = field(default_factory=lambda: ["mountain"])
    """More places for the factorial probe."""
    per_cell: int = 3168
    """Pictures of one class in one place in one environment."""
    shares: list[float] = field(default_factory=lambda: [0.97, 0.87])
    """Of a class's training pictures that are in its usual place, by environment."""
    validation: float = 0.1
    """Of the training pictures, the share that is held out."""
    epochs: int = 1
    rate: float = 1e-4
    weight_decay: float = 1e-4
    dropout: float = 0.1
    """Of the inputs of the last layer."""
    batch: int = 64
    """The paper does not say."""
    threads: int = 2
    """Of the processor, while the classifier is trained or read."""
    units: int = 50
    """Chosen by l1 for the agent to judge."""
    draws: int = 100
    """Random subsets."""
    balanced: int = 320
    """Pictures of one balanced validation set: equally many of each class in each place."""
    pool: int = 3200
    """Pictures that the balanced sets are drawn from."""
    trials: int = 10
    """Balanced sets."""
    splits: int = 5
    """Halvings of a balanced set that the strength of l1 is tuned on."""
    tolerance: float = 1e-4
    """Of scikit-learn's solvers."""
    probe: int = 4
    """Pictures of each class in each place for the factorial probe; 0: no probe."""
    seeds: int = 3
    """Classifiers that are trained and examined, each with its own split, order and first weights."""


@dataclass
class PathsConfig:
    runs: str = "runs"
    exemplars: str = "exemplars"
    cache: str = "~/.cache/openmaia"


@dataclass
class Config:
    name: str = MISSING
    """Names the run directory."""
    units: str = MISSING
    """`layer4=122,210:layer3=5-31`, `layer4=random:20`, `random:20` (of each layer), `all`, or a JSON file."""
    seed: int = 0
    replicates: int = 1
    tools: list[str] = field(default_factory=list[str])
    """Functions of your own for the agent, package.module:function."""
    without: list[str] = field(default_factory=list[str])
    """Instruments that the agent does not get, such as [text2image, edit_images]."""
    target: TargetConfig = field(default_factory=TargetConfig)
    pictures: PicturesConfig = field(default_factory=PicturesConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    editor: EditorConfig = field(default_factory=EditorConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    bias: BiasConfig = field(default_factory=BiasConfig)
    spurious: SpuriousConfig = field(default_factory=SpuriousConfig)
    retries: int = 1
    """How often a failed unit is tried again within one run of the command."""
    pools: PoolsConfig = field(default_factory=PoolsConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    job: JobConfig = field(default_factory=JobConfig)
