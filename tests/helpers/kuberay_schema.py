"""KubeRay's resources and those of Kubernetes as closed JSON schemas: a key that is not known is an error at every level.

The operator's own schema leaves unknown keys out silently. Kubernetes' types come from lightkube-models, which is made from
its OpenAPI description; those of KubeRay 1.7 are written down here, as far as our files may use them. What the operator
checks beyond any schema (ray-operator/controllers/ray/utils/validation.go) is `rules`.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import yaml
from jsonschema import Draft202012Validator
from lightkube.models import core_v1, meta_v1

Document = dict[str, Any]
Text = dict[str, str]


class Auth(msgspec.Struct):
    mode: Literal["token", "disabled"] | None = None
    secretName: str | None = None


class Head(msgspec.Struct):
    template: core_v1.PodTemplateSpec
    rayStartParams: Text | None = None
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    enableIngress: bool | None = None
    labels: Text | None = None
    resources: Text | None = None


class Workers(msgspec.Struct):
    groupName: str
    template: core_v1.PodTemplateSpec
    replicas: int | None = None
    minReplicas: int | None = None
    maxReplicas: int | None = None
    numOfHosts: int | None = None
    idleTimeoutSeconds: int | None = None
    rayStartParams: Text | None = None
    labels: Text | None = None
    resources: Text | None = None


class Storage(msgspec.Struct):
    size: str | None = None
    storageClassName: str | None = None
    accessModes: list[str] | None = None
    subPath: str | None = None
    claimName: str | None = None
    deletionPolicy: Literal["DeleteWithCluster", "Retain"] | None = None


class Credential(msgspec.Struct):
    value: str | None = None
    valueFrom: core_v1.EnvVarSource | None = None


class HeadRecovery(msgspec.Struct):
    backend: Literal["redis", "rocksdb"] | None = None
    storage: Storage | None = None
    redisAddress: str | None = None
    redisUsername: Credential | None = None
    redisPassword: Credential | None = None
    externalStorageNamespace: str | None = None


class Autoscaler(msgspec.Struct):
    version: Literal["v1", "v2"] | None = None
    idleTimeoutSeconds: int | None = None
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] | None = None
    resources: core_v1.ResourceRequirements | None = None
    image: str | None = None
    env: list[core_v1.EnvVar] | None = None


class Cluster(msgspec.Struct):
    headGroupSpec: Head
    workerGroupSpecs: list[Workers] | None = None
    rayVersion: str | None = None
    authOptions: Auth | None = None
    enableInTreeAutoscaling: bool | None = None
    autoscalerOptions: Autoscaler | None = None
    gcsFaultToleranceOptions: HeadRecovery | None = None


class Submitter(msgspec.Struct):
    backoffLimit: int | None = None


class JobSpec(msgspec.Struct):
    entrypoint: str | None = None
    runtimeEnvYAML: str | None = None
    submissionMode: Literal["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"] | None = None
    submitterConfig: Submitter | None = None
    submitterPodTemplate: core_v1.PodTemplateSpec | None = None
    backoffLimit: int | None = None
    activeDeadlineSeconds: int | None = None
    shutdownAfterJobFinishes: bool | None = None
    ttlSecondsAfterFinished: int | None = None
    suspend: bool | None = None
    metadata: Text | None = None
    rayClusterSpec: Cluster | None = None
    clusterSelector: Text | None = None


class RayJob(msgspec.Struct):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: meta_v1.ObjectMeta
    spec: JobSpec


KINDS: dict[str, type] = {
    "RayJob": RayJob,
    "ConfigMap": core_v1.ConfigMap,
    "PersistentVolumeClaim": core_v1.PersistentVolumeClaim,
    "Secret": core_v1.Secret,
}

QUANTITY = r"^\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
NUMBER = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "number", "minimum": 0},
        {"pattern": QUANTITY, "type": "string"},
    ]
}


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items() if key != "description"}
    if "properties" in schema:
        found["additionalProperties"] = False
        for key in {"limits", "requests"} & set(schema["properties"]):
            found["properties"][key] = {"type": "object", "additionalProperties": NUMBER}
    return found


def _validator(kind: type) -> Draft202012Validator:
    return Draft202012Validator(_closed(msgspec.json.schema(kind)))


VALIDATORS = {name: _validator(kind) for name, kind in KINDS.items()}


def mistakes(document: Document) -> list[str]:
    """Where a document does not follow its schema, or a rule of the operator. Empty for a good one."""
    validator = VALIDATORS.get(document.get("kind", ""))
    if validator is None:
        return [f"kind {document.get('kind')!r} is not known"]
    found = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in _leaves(validator, document)]
    return found or (list(rules(document)) if document["kind"] == "RayJob" else [])


def _leaves(validator: Draft202012Validator, document: Document) -> Iterator[Any]:
    """Optional parts are unions with null: the mistake is what the part itself says."""
    for error in validator.iter_errors(document):
        yield from _deepest(error)


def _deepest(error: Any) -> Iterator[Any]:
    inner = [each for each in error.context or () if each.validator_value != "null"]
    if not inner:
        yield error
    for each in inner:
        yield from _deepest(each)


def rules(job: Document) -> Iterator[str]:
    """What the operator refuses, or silently does not do, beyond its schema."""
    name, spec = job["metadata"].get("name", ""), job["spec"]
    if len(name) > 47 or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield f"metadata.name: {name!r} is no DNS-1035 label of at most 47 characters"
    if ("rayClusterSpec" in spec) == ("clusterSelector" in spec):
        yield "spec: one of rayClusterSpec and clusterSelector"
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield "spec.ttlSecondsAfterFinished: needs shutdownAfterJobFinishes"
    if spec.get("suspend") and not spec.get("shutdownAfterJobFinishes"):
        yield "spec.suspend: needs shutdownAfterJobFinishes"
    if spec.get("activeDeadlineSeconds", 1) <= 0 or spec.get("backoffLimit", 0) < 0:
        yield "spec: activeDeadlineSeconds above 0, backoffLimit not below"
    if "runtimeEnvYAML" in spec and not isinstance(yaml.safe_load(spec["runtimeEnvYAML"]), dict):
        yield "spec.runtimeEnvYAML: no mapping"
    if "submitterPodTemplate" in spec:
        yield from _submitter_rules(spec["submitterPodTemplate"]["spec"])
    if "rayClusterSpec" in spec:
        yield from _cluster_rules(spec["rayClusterSpec"])


def _submitter_rules(pod: Document) -> Iterator[str]:
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "submitterPodTemplate: the restartPolicy of a Kubernetes Job is Never or OnFailure"
    yield from _pod_rules("submitterPodTemplate", pod)


def _cluster_rules(cluster: Document) -> Iterator[str]:
    head, groups = cluster["headGroupSpec"], cluster.get("workerGroupSpecs", [])
    growing = bool(cluster.get("enableInTreeAutoscaling"))
    version = tuple(int(part) for part in cluster.get("rayVersion", "0").split("."))
    if cluster.get("authOptions", {}).get("mode") == "token" and version < (2, 52):
        yield "authOptions: tokens need a rayVersion of 2.52 or later"
    if len({group["groupName"] for group in groups}) != len(groups):
        yield "workerGroupSpecs: two groups of one name"
    for group in (head, *groups):
        name, template = group.get("groupName", "head"), group["template"]
        if not template.get("spec", {}).get("containers"):
            yield f"{name}: no container"
            continue
        params = group.get("rayStartParams") or {}
        if group.get("resources") and params.keys() & {"num-cpus", "num-gpus", "memory", "resources"}:
            yield f"{name}: resources both in rayStartParams and in resources"
        if "labels" in params:
            yield f"{name}: labels belong to the group and not to rayStartParams"
        if growing and template["spec"].get("restartPolicy", "Never") != "Never":
            yield f"{name}: restartPolicy Never with the second version of the autoscaler"
        yield from _pod_rules(name, template["spec"])
    for group in groups:
        least, most = group.get("minReplicas"), group.get("maxReplicas")
        if not growing and (least is None or most is None):
            yield f"{group['groupName']}: minReplicas and maxReplicas"
        elif least is not None and most is not None and not 0 <= least <= group.get("replicas", least) <= most:
            yield f"{group['groupName']}: minReplicas <= replicas <= maxReplicas"
    recovery = cluster.get("gcsFaultToleranceOptions")
    if recovery:
        yield from _recovery_rules(recovery, head)


def _pod_rules(name: str, pod: Document) -> Iterator[str]:
    """The API server's own: mounts name volumes, limits are not below requests, names are unique."""
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    if len(set(volumes)) != len(volumes):
        yield f"{name}: two volumes of one name"
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{name}: volumeMount {mount['name']!r} names no volume"
        had = container.get("resources", {})
        if had.get("limits", {}).get("nvidia.com/gpu") != had.get("requests", {}).get("nvidia.com/gpu"):
            yield f"{name}: GPUs asked for and GPUs allowed differ"


def _recovery_rules(recovery: Document, head: Document) -> Iterator[str]:
    if recovery.get("backend") == "rocksdb":
        if any(key.startswith("redis") or key == "externalStorageNamespace" for key in recovery):
            yield "gcsFaultToleranceOptions: rocksdb has no settings of Redis"
        storage = recovery.get("storage", {})
        if "claimName" in storage and storage.keys() & {"size", "storageClassName", "accessModes"}:
            yield "gcsFaultToleranceOptions.storage: a claim of one's own has its size already"
    names = {variable["name"] for variable in head["template"]["spec"]["containers"][0].get("env", [])}
    if names & {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "RAY_gcs_storage", "RAY_gcs_storage_path"}:
        yield "headGroupSpec: the operator sets the variables of the head's storage"
