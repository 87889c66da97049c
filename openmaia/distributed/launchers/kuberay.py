"""Submits a run to Kubernetes as a RayJob, made from the manifests in cluster/kuberay, the config and an image.

A ConfigMap holds the resolved config, and the entry point of the job is the path of that file. Therefore no value of
the config passes through a shell.
"""

import dataclasses
import math
import re
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from openmaia.config.loading import to_yaml
from openmaia.config.machine import POOLS
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.secrets import MARK, is_clean
from openmaia.distributed.cluster.resources import NodeResources, ResourceRequest, of_pools
from openmaia.distributed.launchers import checking
from openmaia.distributed.launchers.overlays import Document, documents
from openmaia.runs.files import joined

SHARED = "/shared"
"""Mount path of the volume that all pods share."""

CONFIG = "/etc/openmaia"
"""Mount path of the config in the head pod."""
LABEL = "openmaia-pool"
"""Key of the label of worker groups in the overlay `pools`. Its value is the pool whose replicas run in the group."""

OBJECTS = 0.35
"""Size of /dev/shm as a share of a pod's memory. Ray uses 30 % of the memory for its object store."""

LONGEST = 47 - 6
"""Number of characters that KubeRay allows in the name of a RayJob, minus the length of the random suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeRayJob:
    """A RayJob manifest, ready to be applied."""

    name: str
    """The unique name of the RayJob."""
    namespace: str
    """The Kubernetes namespace; empty for the current one."""
    documents: list[Document]
    """The Kubernetes objects that are applied: a ConfigMap with the config of the run, and the RayJob."""
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


def prepare(config: Config, overlays: Sequence[str], image: str | None, namespace: str) -> KubeRayJob:
    """Returns the RayJob manifest that executes a run on Kubernetes.

    Args:
        config: The config of the run.
        overlays: Kustomize overlays, each the name of a folder in cluster/kuberay/overlays or a path.
        image: The container image of all pods. None keeps the images of the manifests.
        namespace: The Kubernetes namespace; empty for the current one.

    Raises:
        UsageError: If an overlay cannot be applied or conflicts with the config or another overlay, if a path of the
            config is not on a persistent volume of the pods, if the pods are too small for the config, or if the
            package is not installed from a clone of the repository.
    """
    home = checking.folder("kuberay")
    found = documents(home / "base", [_overlay(home, name) for name in overlays])
    job: Document = next(each for each in found if each["kind"] == "RayJob")
    groups: list[Document] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    autoscaling = bool(job["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling"))
    inside = _inside(config, {group["groupName"] for group in groups} & set(POOLS), autoscaling)
    groups[:] = _sized(groups, inside, autoscaling)
    head: Document = job["spec"]["rayClusterSpec"]["headGroupSpec"]
    _refuse_unmounted(inside, head)
    if autoscaling and job["spec"].get("suspend"):
        raise UsageError("--overlay: Kueue admits no RayJob that grows; give autoscaling or kueue, not both")
    checking.room([inside], _nodes(groups), checking.spoken(config.job))
    name = _name(config.name)
    job["metadata"]["name"] = name
    job["spec"]["entrypoint"] = f"python -m ray_jobs run {CONFIG}/config.yaml"
    job["spec"]["activeDeadlineSeconds"] = max(round(config.job.hours * 3600), 1)
    _size_head(head, inside)
    _mount(head["template"]["spec"], name)
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


def _overlay(home: Path, name: str) -> Path:
    ours = home / "overlays" / name
    return ours if re.fullmatch(r"[a-z-]+", name) and ours.is_dir() else Path(name)


def _name(run: str) -> str:
    """Returns a unique DNS label for the job. Applying a RayJob under the name of a finished one would not start it."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"openmaia-{run.lower()}")[:LONGEST].strip("-")
    return f"{plain}-{secrets.token_hex(3)[:5]}"


def _inside(config: Config, pinned: set[str], autoscaling: bool) -> Config:
    """Returns the config with which the run starts in the pods. It is a copy of the user's config with a few changes.

    Relative paths of runs, exemplars and cache are placed on the shared volume, see `_below`. Each pool in `pinned` that
    needs GPUs gets the node label of its worker group, so that Ray starts its replicas in the pods of that group.
    `ray.address` becomes "auto", so that the run joins the cluster of its pods, and `ray.autoscaling` is set.

    Args:
        config: The config as the user gave it.
        pinned: The names of the pools that have a worker group of their own, such as "generator".
        autoscaling: The new value of `ray.autoscaling`: whether the manifest lets the cluster grow on demand. A run with
            this setting does not check that the present nodes are enough.
    """
    pools = {role: getattr(config.pools, role) for role in POOLS}
    for role in pinned:
        if pools[role].num_gpus:
            pools[role] = dataclasses.replace(pools[role], node_labels={**pools[role].node_labels, LABEL: role})
    shared = {key: _below(getattr(config.paths, key)) for key in ("runs", "exemplars", "cache")}
    return dataclasses.replace(
        config,
        pools=dataclasses.replace(config.pools, **pools),
        paths=dataclasses.replace(config.paths, **shared),
        ray=dataclasses.replace(config.ray, address="auto", autoscaling=autoscaling),
    )


def _below(path: str) -> str:
    """Returns the path in the pods for a path of the config. Relative paths and paths in `~` are placed on
    the shared volume.

    Raises:
        UsageError: If such a path has the part `..`.
    """
    if path.startswith("/") or "://" in path:
        return path
    if ".." in path.split("/"):
        raise UsageError(
            f"a path of the config is {path!r}; the pods have no such folder, give one such as {SHARED}/runs"
        )
    return f"{SHARED}/{path.removeprefix('~').lstrip('/')}"


def _refuse_unmounted(config: Config, head: Document) -> None:
    """Checks that the folders of the config are on persistent volumes of the head pod. Raises UsageError otherwise."""
    pod = head["template"]["spec"]
    lasting = {volume["name"] for volume in pod["volumes"] if "emptyDir" not in volume}
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] in lasting]
    for key in ("runs", "exemplars", "cache"):
        path: str = getattr(config.paths, key)
        if "://" not in path and not any(path == mount or path.startswith(f"{mount}/") for mount in mounts):
            raise UsageError(
                f"paths.{key}={path!r} is on none of the pods' volumes ({', '.join(mounts)}); give a path below "
                f"{SHARED}, or an overlay of your own that mounts another"
            )


def _sized(groups: Sequence[Document], config: Config, autoscaling: bool) -> list[Document]:
    """Returns the worker groups with their resources and numbers of pods.

    A group that has the name of a pool gets the GPUs of that pool. It is left out if the pool needs no GPUs. Any other
    group consists of nodes as the `job` section of the config describes them.

    Args:
        groups: The worker groups of the manifest.
        config: The config of the run.
        autoscaling: Whether the cluster grows on demand. The groups then start without pods, and the group of a pool may
            grow to the largest number of replicas. Otherwise the number of pods is fixed, for the initial replicas.

    Raises:
        UsageError: If the job requests GPUs, but an overlay has removed them from a group.
    """
    pools = {claim.name: claim for claim in of_pools([config])}
    own = {group["groupName"] for group in groups} & set(POOLS)
    sized: list[Document] = []
    for group in groups:
        container = group["template"]["spec"]["containers"][0]
        name = group["groupName"]
        if name in own:
            claim = pools.get(name)
            if claim is None or not claim.gpus:
                continue
            if autoscaling:
                claim = replace(claim, count=max(claim.count, getattr(config.pools, name).max_replicas))
            count, gpus = _pods(claim)
            limits = {**container["resources"]["limits"], "nvidia.com/gpu": gpus}
        else:
            count, limits = config.job.nodes, {"cpu": config.job.cpus, "memory": f"{config.job.memory_gb}Gi"}
            if config.job.gpus and not own:
                if "nvidia.com/gpu" not in container["resources"]["limits"]:
                    raise UsageError(
                        f"job.gpus={config.job.gpus}, but an --overlay leaves worker group {name} without GPUs and with the "
                        "image that has no CUDA; give job.gpus=0, or leave that overlay out"
                    )
                limits["nvidia.com/gpu"] = config.job.gpus
            _make_room_for_objects(group, config.job.memory_gb)
        container["resources"] = {"requests": dict(limits), "limits": dict(limits)}
        least = 0 if autoscaling else count
        sized.append({**group, "replicas": least, "minReplicas": least, "maxReplicas": count})
    return sized


def _size_head(head: Document, config: Config) -> None:
    limits = {"cpu": config.job.head_cpus, "memory": f"{config.job.head_memory_gb}Gi"}
    head["template"]["spec"]["containers"][0]["resources"] = {"requests": dict(limits), "limits": limits}
    _make_room_for_objects(head, config.job.head_memory_gb)


def _make_room_for_objects(group: Document, memory_gb: int) -> None:
    """Sets the size of /dev/shm in the pods of a group. Ray keeps objects that do not fit there on disk."""
    for volume in group["template"]["spec"]["volumes"]:
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            volume["emptyDir"] = {**volume["emptyDir"], "sizeLimit": f"{math.ceil(memory_gb * OBJECTS)}Gi"}


def _pods(claim: ResourceRequest) -> tuple[int, int]:
    """Returns the number of pods for the replicas of a pool, and the number of GPUs of each pod."""
    gpus = max(math.ceil(claim.gpus), 1)
    return math.ceil(claim.count / int(gpus / claim.gpus + 1e-6)), gpus


def _nodes(groups: Sequence[Document]) -> list[NodeResources]:
    """Returns the resources of the pods of all groups, each at its largest number of pods."""
    found: list[NodeResources] = []
    for group in groups:
        limits: dict[str, Any] = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        memory = str(limits["memory"])
        if not (memory.endswith("Gi") and memory[:-2].isdigit()):
            raise UsageError(f"worker group {group['groupName']}: memory {memory!r}; give a whole number of Gi")
        node = NodeResources(
            gpus=int(limits.get("nvidia.com/gpu", 0)),
            cpus=float(limits["cpu"]),
            memory=int(memory[:-2]) * 2.0**30,
            labels=group.get("labels", {}),
        )
        found += [node] * group["maxReplicas"]
    return found


def _mount(pod: Document, name: str) -> None:
    """Mounts the ConfigMap with the config into the head pod, in which the driver runs."""
    pod["volumes"] = [*pod["volumes"], {"name": "config", "configMap": {"name": name}}]
    container = pod["containers"][0]
    mount = {"name": "config", "mountPath": CONFIG, "readOnly": True}
    container["volumeMounts"] = [*container["volumeMounts"], mount]


def submit(job: KubeRayJob) -> str:
    """Applies a manifest with kubectl and returns the name of the RayJob. Raises UsageError if kubectl fails."""
    checking.program("kubectl", "hands jobs to Kubernetes")
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
