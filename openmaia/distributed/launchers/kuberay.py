"""Submits a run to Kubernetes as a RayJob, made from cluster/kuberay/rayjob.yaml, the config and an image."""

import dataclasses
import math
import re
import secrets
import subprocess
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from openmaia.config.loading import to_yaml
from openmaia.config.machine import JobConfig
from openmaia.config.schema import Config
from openmaia.core.documents import parse_yaml_documents
from openmaia.core.errors import UsageError
from openmaia.core.secrets import MARK, is_clean
from openmaia.core.shipped import shipped
from openmaia.distributed.cluster.resources import NodeResources, ResourceRequest, of_pools
from openmaia.distributed.launchers import sizes
from openmaia.runs.files import joined

Document = dict[str, Any]

_SHARED = "/shared"
"""Mount path of the volume that all pods share."""

_CONFIG = "/etc/openmaia"
"""Mount path of the config in the head pod."""

_LABEL = "openmaia-pool"
"""Key of the label of a worker group that holds one pool. Its value is the name of the pool."""

_GPUS = "nvidia.com/gpu"

_IMAGE = "openmaia:0.2.0-gpu"
"""The image of pods where the job has GPUs. The manifest has the one for CPUs."""

_POOL_CPUS, _POOL_GB = 8, 32
"""Smallest number of CPUs, and memory in GiB, of a pod in the group of a pool."""

_OBJECTS = 0.35
"""Size of /dev/shm as a share of a pod's memory. Ray uses 30 % of the memory for its object store."""

_LONGEST = 47 - 6
"""Number of characters that KubeRay allows in the name of a RayJob, minus the length of the random suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeRayJob:
    """A RayJob manifest, ready to be applied."""

    name: str
    namespace: str
    """Empty: the current one."""
    documents: list[Document]
    """A ConfigMap with the config of the run, and the RayJob."""
    run: str
    """The path of the run directory in the pods."""

    def __str__(self) -> str:
        return yaml.dump_all(self.documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes YAML for human readers: strings of several lines as block scalars, and no anchors or aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def prepare(config: Config, image: str | None, namespace: str, *, by_pool: bool) -> KubeRayJob:
    """Returns the manifest that executes a run on Kubernetes.

    Args:
        config: The config of the run. With `ray.autoscaling`, worker pods start on demand.
        image: The container image of all pods; None for that of cluster/Dockerfile, with CUDA if the job has GPUs.
        namespace: The Kubernetes namespace; empty for the current one.
        by_pool: Whether each pool that needs GPUs gets a worker group, to which its replicas are confined. The other pods
            then have no GPUs.

    Raises:
        UsageError: If a path of the config is not on the shared volume, or the pods are too small for the config.
    """
    # A ConfigMap holds the config, and the entry point names only its file, so that no value passes through a shell.
    job: Document = parse_yaml_documents((shipped("cluster") / "kuberay" / "rayjob.yaml").read_bytes())[0]
    cluster: Document = job["spec"]["rayClusterSpec"]
    head: Document = cluster["headGroupSpec"]
    pools = [claim for claim in of_pools([config], largest=config.ray.autoscaling) if claim.gpus] if by_pool else []
    inside = _inside(config, pools)
    groups = _worker_groups(cluster["workerGroupSpecs"][0], inside, pools, by_pool=by_pool)
    cluster["workerGroupSpecs"] = groups
    sizes.require_room([inside], _nodes(groups), sizes.describe_size(config.job))
    name = _name(config.name)
    job["metadata"]["name"] = name
    job["spec"]["entrypoint"] = f"python -m ray_jobs run {_CONFIG}/config.yaml"
    job["spec"]["activeDeadlineSeconds"] = max(round(config.job.hours * 3600), 1)
    _size(head, {"cpu": config.job.head_cpus, "memory": f"{config.job.head_memory_gb}Gi"})
    _mount(head["template"]["spec"], name)
    if config.ray.autoscaling:
        _let_grow(cluster)
    if image is None and any(_GPUS in _limits(group) for group in groups):
        image = _IMAGE
    templates = [job["spec"]["submitterPodTemplate"], *(group["template"] for group in (head, *groups))]
    for container in (each for template in templates for each in template["spec"]["containers"]):
        container["image"] = image or container["image"]
    text = to_yaml(inside)
    if not is_clean(text) or f"?{MARK}" in text or f"{MARK}@" in text:
        raise UsageError(
            "the config has a URL with a password or a query, or a path from the environment of this machine, and a "
            "ConfigMap would hold it; give 'KEY=${oc.env:NAME}' with a variable of the pods (from a Kubernetes Secret), "
            "and paths as they are in the pods"
        )
    settings: Document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": dict(job["metadata"]["labels"])},
        "data": {"config.yaml": text},
    }
    return KubeRayJob(
        name=name, namespace=namespace, documents=[settings, job], run=joined(inside.paths.runs, inside.name)
    )


def _name(run: str) -> str:
    """Returns a unique DNS label for the job."""
    # Applying a RayJob under the name of a finished one would not start it.
    plain = re.sub(r"[^a-z0-9]+", "-", f"openmaia-{run.lower()}")[:_LONGEST].strip("-")
    return f"{plain}-{secrets.token_hex(3)[:5]}"


def _inside(config: Config, pools: list[ResourceRequest]) -> Config:
    """Returns the config with which the run starts in the pods.

    Raises:
        UsageError: If the folder of runs, exemplars or cache is not on the shared volume.
    """
    labelled = {
        claim.name: dataclasses.replace(pool, node_labels={**pool.node_labels, _LABEL: claim.name})
        for claim in pools
        for pool in [getattr(config.pools, claim.name)]
    }
    shared = {key: _below(key, getattr(config.paths, key)) for key in ("runs", "exemplars", "cache")}
    return dataclasses.replace(
        config,
        pools=dataclasses.replace(config.pools, **labelled),
        paths=dataclasses.replace(config.paths, **shared),
        ray=dataclasses.replace(config.ray, address="auto"),
    )


def _below(key: str, path: str) -> str:
    """Returns the path in the pods for a path of the config. Relative paths and paths in `~` are put on the volume."""
    if "://" in path or path.startswith(f"{_SHARED}/") or path == _SHARED:
        return path
    if path.startswith("/") or ".." in path.split("/"):
        raise UsageError(
            f"paths.{key}={path!r} is not on the volume of the pods; give a relative path, one below {_SHARED}, where the "
            "volume is mounted, or a URL"
        )
    return f"{_SHARED}/{path.removeprefix('~').lstrip('/')}"


def _worker_groups(nodes: Document, config: Config, pools: list[ResourceRequest], *, by_pool: bool) -> list[Document]:
    """Returns the worker groups: one of nodes as the `job` section describes them, and one for each of the pools."""
    job: JobConfig = config.job
    limits: Document = {"cpu": job.cpus, "memory": f"{job.memory_gb}Gi"}
    if job.gpus and not by_pool:
        limits[_GPUS] = job.gpus
    groups = [_group(nodes, "nodes", job.nodes, limits)]
    for claim in pools:
        gpus = max(math.ceil(claim.gpus), 1)
        together = int(gpus / claim.gpus + 1e-6)  # 1 / 0.1 and the like are a little less than a whole number.
        limits = {"cpu": max(_POOL_CPUS, math.ceil(claim.cpus * together)), "memory": f"{_POOL_GB}Gi", _GPUS: gpus}
        group = _group(nodes, claim.name, math.ceil(claim.count / together), limits)
        groups.append({**group, "labels": {_LABEL: claim.name}})
    for group in groups if config.ray.autoscaling else []:
        group["replicas"] = group["minReplicas"] = 0
    return groups


def _group(nodes: Document, name: str, count: int, limits: Document) -> Document:
    group = {**deepcopy(nodes), "groupName": name, "replicas": count, "minReplicas": count, "maxReplicas": count}
    _size(group, limits)
    if _GPUS in limits:
        group["template"]["spec"]["tolerations"] = [{"key": _GPUS, "operator": "Exists", "effect": "NoSchedule"}]
    return group


def _size(group: Document, limits: Document) -> None:
    """Sets the resources of a group's pods, and the size of their /dev/shm. Ray keeps on disk what does not fit there."""
    pod: Document = group["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": dict(limits), "limits": dict(limits)}
    for volume in pod["volumes"]:
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            size = f"{math.ceil(int(limits['memory'].removesuffix('Gi')) * _OBJECTS)}Gi"
            volume["emptyDir"] = {**volume["emptyDir"], "sizeLimit": size}


def _limits(group: Document) -> Document:
    return group["template"]["spec"]["containers"][0]["resources"]["limits"]


def _nodes(groups: list[Document]) -> list[NodeResources]:
    """Returns the pods of all groups, each at its largest number of pods."""
    return [
        NodeResources(
            gpus=limits.get(_GPUS, 0),
            cpus=limits["cpu"],
            memory=int(limits["memory"].removesuffix("Gi")) * 2.0**30,
            labels=group.get("labels", {}),
        )
        for group in groups
        for limits in [_limits(group)]
        for _ in range(group["maxReplicas"])
    ]


def _let_grow(cluster: Document) -> None:
    """Adds KubeRay's autoscaler to a cluster."""
    resources = {"cpu": "500m", "memory": "1Gi"}
    cluster["enableInTreeAutoscaling"] = True
    cluster["autoscalerOptions"] = {
        "version": "v2",
        # A pod that loads weights again costs minutes: idle ones stay a while.
        "idleTimeoutSeconds": 300,
        "upscalingMode": "Default",
        "resources": {"requests": resources, "limits": resources},
    }
    # The second version of the autoscaler replaces pods and wants none that restarts by itself.
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        group["template"]["spec"]["restartPolicy"] = "Never"
    # The autoscaler beside the head asks Kubernetes for pods.
    del cluster["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"]


def _mount(pod: Document, name: str) -> None:
    """Mounts the ConfigMap into the head pod, in which the driver runs."""
    pod["volumes"] = [*pod["volumes"], {"name": "config", "configMap": {"name": name}}]
    container = pod["containers"][0]
    mount = {"name": "config", "mountPath": _CONFIG, "readOnly": True}
    container["volumeMounts"] = [*container["volumeMounts"], mount]


def submit(job: KubeRayJob) -> str:
    """Applies a manifest with kubectl and returns the name of the RayJob. Raises UsageError if kubectl fails."""
    sizes.find_program("kubectl", "hands jobs to Kubernetes")
    command = ["kubectl", "apply", *_namespace(job), "--filename=-"]
    done = subprocess.run(command, input=str(job), capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"kubectl did not take the job: {' '.join(done.stderr.split())}")
    return job.name


def _namespace(job: KubeRayJob) -> list[str]:
    return [f"--namespace={job.namespace}"] if job.namespace else []


def follow(job: KubeRayJob) -> list[str]:
    """Returns three shell commands: they show the state of the job, follow its log and end it."""
    kubectl = " ".join(["kubectl", *_namespace(job)])
    words = "get rayjob {} --watch", "logs --follow job/{}", "delete rayjob,configmap {}"
    return [f"{kubectl} {word.format(job.name)}" for word in words]
