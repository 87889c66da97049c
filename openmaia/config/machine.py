"""Config sections about where a run is executed and with how many processes. They may change on resume."""

import re
from dataclasses import dataclass, field
from typing import Literal

from openmaia.core.components import within

MACHINE_SECTIONS = ("ray", "pools", "paths", "job", "retries", "tracking", "sandbox", "budget", "prices")
POOLS = ("target", "generator", "editor", "backbone")
TEST_GENERATOR = "test_generator"


@dataclass
class PoolConfig:
    """`pools.target`: the pool of a service."""

    min_replicas: int = 1
    """Replicas that the pool starts with and keeps."""
    max_replicas: int = 0
    """Number of replicas up to which the pool grows while requests are queued. 0: it does not grow."""
    max_batch: int = 16
    """Largest number of requests in a batch."""
    deadline: float = 600.0
    """Timeout of a batch in seconds, after which its replica is considered dead and is replaced."""
    num_cpus: float = 0.0
    """Number of CPUs per replica."""
    num_gpus: float = 0.0
    """Number of GPUs per replica. With a fraction, replicas share a GPU."""
    node_labels: dict[str, str] = field(default_factory=dict[str, str])
    """Labels that a Ray node must have to hold replicas (`ray start --labels`, or `labels` of a KubeRay worker group).
    The values are Ray's label selectors: `h100`, `!l4`, `in(a100,h100)` for several kinds of cards, or `!in(l4,t4)`."""


@dataclass
class DrawingPoolConfig(PoolConfig):
    """`pools.generator`, `pools.editor`: the processes that make images with one model, and the cache of images."""

    cache_mb: int = within(256, zero=True)
    """Memory for the cache of images, in MiB. 0: no cache, so that every image is generated anew. Images
    that may be another time different ones, such as those made of your pictures, are never cached."""
    spill_mb: int = within(1024, zero=True)
    """Disk space below `paths.cache` for cached images, in MiB. All runs on this machine share it. 0: images are cached
    in memory only."""


@dataclass
class PoolsConfig:
    """`pools`: for each model, the settings of its pool."""

    target: PoolConfig = field(default_factory=PoolConfig)
    generator: DrawingPoolConfig = field(default_factory=DrawingPoolConfig)
    editor: DrawingPoolConfig = field(default_factory=DrawingPoolConfig)
    backbone: PoolConfig = field(default_factory=PoolConfig)
    test_generator: DrawingPoolConfig = field(default_factory=DrawingPoolConfig)
    """The pool of `evaluate.generator`, which is started only if that section names a generator."""


def host_and_port(address: str) -> tuple[str, int] | None:
    """Splits a `ray.address`; None for one without both, such as `auto`."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    return (found[1], int(found[2])) if found else None


@dataclass
class RayConfig:
    """`ray`: the Ray cluster, and the processes on it."""

    address: str = "local"
    """`local`: start a cluster for this run; `auto`: the cluster on this machine; `host:port` or `ray://...`: another
    cluster, whose nodes this machine has to reach on all ports."""
    num_cpus: int = 0
    """CPUs of a local cluster. 0: all CPUs of the machine."""
    investigations: int = 4
    """Number of investigations that run concurrently."""
    investigations_per_process: int = 8
    """Number of investigations that share one process, each in a thread of its own."""
    cpus_per_investigation: float = within(0.25, zero=True)
    """CPUs that Ray reserves for an investigation."""
    memory_mb: int = 400
    """Memory that Ray reserves for an investigation with its sandbox, in MiB. The images and calls that it holds may take
    all but 150 MiB of it, and at least 64 MiB. More is needed if images are larger than 512 x 512."""
    exemplar_workers: int = 0
    """Number of processes that compute exemplars, each with a copy of the network. 0: if `pools.target.num_gpus`
    is above 0, as many as the GPUs can hold, at most four on each GPU; otherwise one per core, at most eight."""
    wait_seconds: float = within(120.0, zero=True)
    """Seconds to wait for more nodes if the cluster is too small for `pools`."""
    autoscaling: bool = False
    """Whether the cluster grows on demand. If so, its present size is not checked, and `openmaia submit kuberay` begins
    without worker pods."""


@dataclass
class RuntimeEnvConfig:
    """`job.runtime_env`: the environment of a job that `openmaia submit ray` sends to a running cluster."""

    pip: list[str] = field(default_factory=list[str])
    """Requirements that Ray installs with pip on each node. A leading dot stands for the folder that is submitted: if
    that is a clone of OpenMAIA, `.[gpu]` installs the clone with its extra `gpu`."""
    uv: list[str] = field(default_factory=list[str])
    """Like `pip`, but installed with uv."""
    image_uri: str = ""
    """A container image in which the job's processes run, such as `registry.example.org/openmaia:0.2.0-gpu`. Needs
    Podman on the nodes."""
    py_executable: str = ""
    """A Python that every node sees and that has OpenMAIA, such as `/shared/openmaia/.venv/bin/python`."""
    env_vars: list[str] = field(default_factory=list[str])
    """Names of environment variables that are passed to the job, with their values on the machine that submits it."""


@dataclass
class JobConfig:
    """`job`: the resources that `openmaia submit` requests from SLURM or Kubernetes."""

    nodes: int = within(1, most=100_000)
    """Number of nodes."""
    cpus: int = 4
    """CPUs per node."""
    gpus: int = 0
    """GPUs per node."""
    memory_gb: int = 16
    """Memory per node in GiB."""
    hours: float = 24.0
    """Time limit in hours."""
    head_cpus: int = 4
    """KubeRay: CPUs of the pod that holds the driver and the dispatchers."""
    head_memory_gb: int = 16
    """KubeRay: memory of that pod, in GiB."""
    runtime_env: RuntimeEnvConfig = field(default_factory=RuntimeEnvConfig)


@dataclass
class PricesConfig:
    """`prices`: what models cost. Prices of single models are keys of their sections, such as `backbone.input_price`."""

    file: str = ""
    """A YAML file with prices, in the form of `configs/prices.yaml`, that replace those of this package."""
    gpu_hour: float = within(0.0, zero=True)
    """US dollars for an hour of a GPU of yours. It counts for the time in which a model on it works, not for loading or idle
    time. 0: your GPUs cost nothing."""


@dataclass
class TrackingConfig:
    """`tracking`: shows the run in Weights & Biases as well."""

    kind: Literal["none", "wandb"] = "none"
    """`none` or `wandb`."""
    mode: Literal["online", "offline", "disabled"] = "online"
    """`online`; `offline`: written to the run directory for `wandb sync`; `disabled`: like kind `none`."""
    project: str = "openmaia"
    """The project in Weights & Biases."""
    entity: str = ""
    """A user or a team. Empty: the default of the account."""
    name: str = ""
    """Name in Weights & Biases. Empty: the name of the run."""
    tags: list[str] = field(default_factory=list[str])
    """Tags in Weights & Biases."""
    every: float = 5.0
    """Seconds between two points of the time series that are logged while the run is executed."""
    finish_seconds: float = 60.0
    """Largest number of seconds to wait at the end of a run for data that are still being sent."""


@dataclass
class PathsConfig:
    """`paths`: the folders of results and downloads."""

    runs: str = "runs"
    """Folder of the run directories, local or a URL such as `s3://bucket/runs`."""
    exemplars: str = "exemplars"
    """Folder of the exemplars, local or a URL."""
    cache: str = "~/.cache/openmaia"
    """Folder of downloads and other files that can be recreated."""
