"""A run as a RayJob: the files of cluster/kuberay, filled in with the config, its resources and an image.

The config travels in a ConfigMap, resolved, and the entry point only names it: nothing that a config holds reaches a
shell or has to be quoted.
"""

import dataclasses
import math
import re
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from openmaia.config import to_yaml
from openmaia.errors import UsageError
from openmaia.remote.wish import Claim, Node, of_pools
from openmaia.schema import POOLS, Config
from openmaia.submit import checking
from openmaia.submit.overlays import Document, documents

SHARED = "/shared"
"""Where the pods have the volume that they share."""

CONFIG = "/etc/openmaia"
LABEL = "openmaia-pool"
"""On the worker groups of the overlay `pools`."""

OBJECTS = 0.35
"""Of a pod's memory, in /dev/shm: Ray wants 30 % of it for its objects."""

LONGEST = 47 - 6
"""Characters that KubeRay allows in a RayJob's name, less those that make it unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    namespace: str
    documents: list[Document]
    run: str
    """The run's directory, as the pods see it."""

    def __str__(self) -> str:
        return yaml.dump_all(self.documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """For readers: several lines as a block, nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def prepare(config: Config, overlays: Sequence[str], image: str | None, namespace: str) -> Job:
    """overlays: names below cluster/kuberay/overlays, or folders. image: in place of the files' own. Raises UsageError."""
    home = checking.folder("kuberay")
    found = documents(home / "base", [_overlay(home, name) for name in overlays])
    job: Document = next(each for each in found if each["kind"] == "RayJob")
    groups: list[Document] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    autoscaling = bool(job["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling"))
    inside = _inside(config, {group["groupName"] for group in groups} & set(POOLS), autoscaling)
    groups[:] = _sized(groups, inside, autoscaling)
    _refuse_unmounted(inside, job["spec"]["rayClusterSpec"]["headGroupSpec"])
    if autoscaling and job["spec"].get("suspend"):
        raise UsageError("--overlay: Kueue admits no RayJob that grows; give autoscaling or kueue, not both")
    checking.room([inside], _nodes(groups), checking.spoken(config.job))
    name = _name(config.name)
    job["metadata"]["name"] = name
    job["spec"]["entrypoint"] = f"python -m ray_jobs.run {CONFIG}/config.yaml"
    job["spec"]["activeDeadlineSeconds"] = max(round(config.job.hours * 3600), 1)
    _mount(job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"], name)
    for group in (job["spec"]["rayClusterSpec"]["headGroupSpec"], *groups):
        for container in group["template"]["spec"]["containers"]:
            container["image"] = image or container["image"]
    settings: Document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": dict(job["metadata"]["labels"])},
        "data": {"config.yaml": to_yaml(inside)},
    }
    return Job(name=name, namespace=namespace, documents=[settings, job], run=f"{inside.paths.runs}/{inside.name}")


def _overlay(home: Path, name: str) -> Path:
    ours = home / "overlays" / name
    return ours if re.fullmatch(r"[a-z-]+", name) and ours.is_dir() else Path(name)


def _name(run: str) -> str:
    """A DNS label of its own: a finished RayJob does not start again when it is applied a second time."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"openmaia-{run.lower()}")[:LONGEST].strip("-")
    return f"{plain}-{secrets.token_hex(3)[:5]}"


def _inside(config: Config, pinned: set[str], autoscaling: bool) -> Config:
    """The config as it reads within the pods. pinned: pools that have a worker group of their own."""
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
    """Relative paths, and those of a home, are meant for the volume that all pods share."""
    if path.startswith("/") or "://" in path:
        return path
    if ".." in path.split("/"):
        raise UsageError(
            f"a path of the config is {path!r}; the pods have no such folder, give one such as {SHARED}/runs"
        )
    return f"{SHARED}/{path.removeprefix('~').lstrip('/')}"


def _refuse_unmounted(config: Config, head: Document) -> None:
    """Raises UsageError for a folder that would be gone with the pod that it is in."""
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
    """Groups named after a pool get what it wants; any other is made of whole nodes. Groups without pods are left out."""
    pools = {claim.name: claim for claim in of_pools(config)}
    own = {group["groupName"] for group in groups} & set(POOLS)
    sized: list[Document] = []
    for group in groups:
        container = group["template"]["spec"]["containers"][0]
        name = group["groupName"]
        if name in own:
            claim = pools.get(name)
            if claim is None or not claim.gpus:
                continue
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


def _make_room_for_objects(group: Document, memory_gb: int) -> None:
    """In /dev/shm; what does not fit there Ray would keep on the pod's disk."""
    for volume in group["template"]["spec"]["volumes"]:
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            volume["emptyDir"] = {**volume["emptyDir"], "sizeLimit": f"{math.ceil(memory_gb * OBJECTS)}Gi"}


def _pods(claim: Claim) -> tuple[int, int]:
    """How many pods hold the replicas of a pool, and GPUs of each."""
    gpus = max(math.ceil(claim.gpus), 1)
    return math.ceil(claim.count / int(gpus / claim.gpus + 1e-6)), gpus


def _nodes(groups: Sequence[Document]) -> list[Node]:
    """What the pods of all groups have once there are as many as there may be."""
    found: list[Node] = []
    for group in groups:
        limits: dict[str, Any] = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        memory = str(limits["memory"])
        if not (memory.endswith("Gi") and memory[:-2].isdigit()):
            raise UsageError(f"worker group {group['groupName']}: memory {memory!r}; give a whole number of Gi")
        node = Node(
            gpus=int(limits.get("nvidia.com/gpu", 0)),
            cpus=float(limits["cpu"]),
            memory=int(memory[:-2]) * 2.0**30,
            labels=group.get("labels", {}),
        )
        found += [node] * group["maxReplicas"]
    return found


def _mount(pod: Document, name: str) -> None:
    """The config, where the driver reads it: on the head."""
    pod["volumes"] = [*pod["volumes"], {"name": "config", "configMap": {"name": name}}]
    container = pod["containers"][0]
    mount = {"name": "config", "mountPath": CONFIG, "readOnly": True}
    container["volumeMounts"] = [*container["volumeMounts"], mount]


def submit(job: Job) -> str:
    """The RayJob's name. Raises UsageError where Kubernetes does not take it."""
    checking.program("kubectl", "hands jobs to Kubernetes")
    command = ["kubectl", "apply", *_namespace(job), "--filename=-"]
    done = subprocess.run(command, input=str(job), capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"kubectl did not take the job: {' '.join(done.stderr.split())}")
    return job.name


def _namespace(job: Job) -> list[str]:
    return [f"--namespace={job.namespace}"] if job.namespace else []


def follow(job: Job) -> list[str]:
    kubectl = " ".join(["kubectl", *_namespace(job)])
    return [
        f"{kubectl} get rayjob {job.name} --watch",
        f"{kubectl} logs --follow job/{job.name}",
        f"{kubectl} delete rayjob,configmap {job.name}",
    ]
