"""The manifests of cluster/kuberay: what Kubernetes and the operator would refuse, or leave out without a word."""

import copy
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.distributed.launchers.overlays import documents
from tests.conftest import REPOSITORY
from tests.helpers.kuberay_schema import Document, mistakes

HOME = REPOSITORY / "cluster/kuberay"
OVERLAYS = sorted(path.name for path in (HOME / "overlays").iterdir())
STACKS = [(), *((name,) for name in OVERLAYS), ("pools", "autoscaling"), ("cpu", "kueue")]


def stack(*names: str) -> list[Document]:
    return documents(HOME / "base", [HOME / "overlays" / name for name in names])


def job(*names: str) -> Document:
    return next(each for each in stack(*names) if each["kind"] == "RayJob")


def pods(document: Document) -> list[Document]:
    cluster = document["spec"]["rayClusterSpec"]
    groups = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [document["spec"]["submitterPodTemplate"]["spec"], *groups]


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_every_manifest_follows_its_schema_and_the_operators_rules(names: tuple[str, ...]):
    assert [mistake for document in stack(*names) for mistake in mistakes(document)] == []


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("name", OVERLAYS)
def test_our_reading_of_an_overlay_is_that_of_kustomize(name: str):
    done = subprocess.run(
        ["kubectl", "kustomize", HOME / "overlays" / name], capture_output=True, text=True, check=True
    )
    theirs = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert theirs == {each["kind"]: each for each in stack(name)}


# -- typos, at every level ---------------------------------------------------------------------------------------------

Change = Callable[[Document], Any]


def rename(where: Callable[[Document], Document], old: str, new: str) -> Change:
    def change(document: Document) -> None:
        part = where(document)
        part[new] = part.pop(old)

    return change


def put(where: Callable[[Document], Document], key: str, value: Any) -> Change:
    return lambda document: where(document).update({key: value})


def spec(document: Document) -> Document:
    return document["spec"]


def cluster(document: Document) -> Document:
    return document["spec"]["rayClusterSpec"]


def head(document: Document) -> Document:
    return cluster(document)["headGroupSpec"]


def workers(document: Document) -> Document:
    return cluster(document)["workerGroupSpecs"][0]


def pod(document: Document) -> Document:
    return workers(document)["template"]["spec"]


def container(document: Document) -> Document:
    return pod(document)["containers"][0]


TYPOS: dict[str, tuple[Change, str]] = {
    "apiVersion": (put(lambda d: d, "apiVersion", "ray.io/v2"), "'ray.io/v2'"),
    "metadata": (rename(lambda d: d["metadata"], "labels", "label"), "'label'"),
    "job": (rename(spec, "shutdownAfterJobFinishes", "shutdownAfterJobFinish"), "'shutdownAfterJobFinish'"),
    "mode": (put(spec, "submissionMode", "K8sJobMod"), "'K8sJobMod'"),
    "submitter": (rename(lambda d: spec(d)["submitterConfig"], "backoffLimit", "backOffLimit"), "'backOffLimit'"),
    "cluster": (rename(cluster, "workerGroupSpecs", "workerGroupSpec"), "'workerGroupSpec'"),
    "authentication": (put(lambda d: cluster(d)["authOptions"], "mode", "tokens"), "'tokens'"),
    "head": (rename(head, "rayStartParams", "rayStartParam"), "'rayStartParam'"),
    "start parameter": (put(lambda d: head(d)["rayStartParams"], "num-cpus", 0), "0 is not of type 'string'"),
    "group": (rename(workers, "groupName", "groupname"), "'groupname'"),
    "group's type": (put(workers, "maxReplicas", "8"), "'8' is not of type 'integer'"),
    "template": (rename(lambda d: workers(d)["template"], "spec", "specs"), "'specs'"),
    "pod": (rename(pod, "terminationGracePeriodSeconds", "terminationGracePeriod"), "'terminationGracePeriod'"),
    "pod's security": (rename(lambda d: pod(d)["securityContext"], "fsGroup", "fsgroup"), "'fsgroup'"),
    "toleration": (rename(lambda d: pod(d)["tolerations"][0], "effect", "effects"), "'effects'"),
    "volume": (rename(lambda d: pod(d)["volumes"][1]["emptyDir"], "sizeLimit", "sizelimit"), "'sizelimit'"),
    "container": (rename(container, "volumeMounts", "volumeMount"), "'volumeMount'"),
    "resources": (rename(lambda d: container(d)["resources"], "limits", "limit"), "'limit'"),
    "quantity": (put(lambda d: container(d)["resources"]["limits"], "memory", "256 GB"), "'256 GB'"),
    "variable": (rename(lambda d: container(d)["env"][0], "value", "val"), "'val'"),
    "secret": (rename(lambda d: container(d)["envFrom"][0]["secretRef"], "optional", "optionally"), "'optionally'"),
    "mount": (rename(lambda d: container(d)["volumeMounts"][0], "mountPath", "mountpath"), "'mountpath'"),
}
RULES: dict[str, tuple[Change, str]] = {
    "name": (put(lambda d: d["metadata"], "name", "3-runs"), "DNS-1035"),
    "long name": (put(lambda d: d["metadata"], "name", "a" * 48), "47 characters"),
    "no cluster": (lambda d: spec(d).pop("rayClusterSpec"), "clusterSelector"),
    "two clusters": (put(spec, "clusterSelector", {"ray.io/cluster": "a"}), "clusterSelector"),
    "time to live": (put(spec, "shutdownAfterJobFinishes", False), "ttlSecondsAfterFinished"),
    "deadline": (put(spec, "activeDeadlineSeconds", 0), "activeDeadlineSeconds"),
    "old Ray": (put(cluster, "rayVersion", "2.51.2"), "2.52"),
    "bounds": (put(workers, "maxReplicas", 0), "minReplicas <="),
    "no bounds": (lambda d: workers(d).pop("minReplicas"), "minReplicas and maxReplicas"),
    "resources twice": (put(head, "resources", {"cpu": "4"}), "rayStartParams"),
    "labels": (put(lambda d: workers(d)["rayStartParams"], "labels", "a=b"), "labels"),
    "restarts": (lambda d: (put(cluster, "enableInTreeAutoscaling", True)(d), put(pod, "restartPolicy", "Always")(d)), "Never"),
    "no volume": (put(lambda d: container(d)["volumeMounts"][0], "name", "elsewhere"), "names no volume"),
    "storage": (put(cluster, "gcsFaultToleranceOptions", {"backend": "rocksdb", "redisAddress": "a:1"}), "rocksdb"),
    "GPUs": (put(lambda d: container(d)["resources"]["limits"], "nvidia.com/gpu", 4), "GPUs"),
}  # fmt: skip


@pytest.mark.parametrize("level", [*TYPOS, *RULES])
def test_a_mistake_is_found_at_its_level(level: str):
    change, words = (TYPOS | RULES)[level]
    wrong = copy.deepcopy(job())
    change(wrong)
    assert any(words in mistake for mistake in mistakes(wrong)), mistakes(wrong)


def test_a_mistake_in_a_claim_is_found():
    claim = next(each for each in stack() if each["kind"] == "PersistentVolumeClaim")
    claim["spec"]["accessMode"] = claim["spec"].pop("accessModes")
    assert "accessMode" in mistakes(claim)[0]


# -- what the launchers name is there ----------------------------------------------------------------------------------


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_the_entry_point_and_the_configs_that_it_names_exist(names: tuple[str, ...]):
    python, dash, module, command, *given = job(*names)["spec"]["entrypoint"].split()
    assert (python, dash, command) == ("python", "-m", "run") and find_spec(module) is not None
    inside = "/opt/openmaia/"
    sources = [str(REPOSITORY / each.removeprefix(inside)) if each.startswith(inside) else each for each in given]
    assert load(sources).paths.runs.startswith("/shared/")


def test_images_are_those_that_the_dockerfile_builds():
    stages = set(re.findall(r"^FROM .* AS (\w+)$", (REPOSITORY / "cluster/Dockerfile").read_text(), re.M))
    version = re.search(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), re.M)
    assert version
    images = {each["image"] for names in STACKS for pod in pods(job(*names)) for each in pod["containers"]}
    assert images == {f"openmaia:{version[1]}-{stage}" for stage in ("cpu", "gpu")}
    assert {"cpu", "gpu"} <= stages


def test_the_manifests_and_the_image_have_the_ray_that_we_install():
    installed = re.search(r'"ray\[default\]>=(\d+\.\d+)', (REPOSITORY / "pyproject.toml").read_text())
    assert installed
    assert job()["spec"]["rayClusterSpec"]["rayVersion"].startswith(f"{installed[1]}.")
    locked = (REPOSITORY / "cluster/requirements.lock").read_text()
    assert re.search(rf"^ray(\[\w+\])?=={re.escape(job()['spec']['rayClusterSpec']['rayVersion'])} ", locked, re.M)


def test_every_locked_package_has_a_hash_and_no_address():
    locked = (REPOSITORY / "cluster/requirements.lock").read_text()
    pinned = [line for line in locked.splitlines() if re.match(r"[a-z0-9]", line)]
    assert len(pinned) > 100 and all("==" in line and line.endswith("\\") for line in pinned)
    assert "://" not in locked + (REPOSITORY / "cluster/Dockerfile").read_text()


def test_code_and_readme_come_after_the_heavy_layers():
    stages = (REPOSITORY / "cluster/Dockerfile").read_text().split("\nFROM ")
    for stage in stages[2:]:
        assert 0 <= stage.index("demo.lock") < stage.index("README.md") < stage.index("COPY openmaia")
    assert "README.md" not in stages[1].replace("cluster/README.md", "")


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_no_pod_runs_as_root_or_may_become_more(names: tuple[str, ...]):
    for each in pods(job(*names)):
        assert each["securityContext"]["runAsNonRoot"] and each["securityContext"]["runAsUser"]
        assert all(c["securityContext"]["allowPrivilegeEscalation"] is False for c in each["containers"])


@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_a_failed_driver_buys_no_new_cluster_and_a_lost_head_is_tried_again(names: tuple[str, ...]):
    """tests/cluster/test_runtime_env.py shows when the submitter fails."""
    wanted = job(*names)["spec"]
    assert wanted["backoffLimit"] == 0 and wanted["submitterConfig"]["backoffLimit"] > 0
    assert wanted["submissionMode"] == "K8sJobMode"
    assert wanted["submitterPodTemplate"]["spec"]["restartPolicy"] == "Never"


def test_without_gpus_none_is_asked_for():
    assert "nvidia" not in yaml.safe_dump(job("cpu"))


def test_the_overlay_of_pools_has_a_group_for_each_service_as_the_machine_config_has_it():
    config = load(["name=x", "units=all", "target.name=t", str(REPOSITORY / "configs/machine/eight-gpus.yaml")])
    groups = {group["groupName"]: group for group in cluster(job("pools"))["workerGroupSpecs"]}
    for role in ("target", "generator", "editor", "backbone"):
        pool = getattr(config.pools, role)
        assert pool.min_replicas <= groups[role]["replicas"] <= max(pool.min_replicas, pool.max_replicas)
        assert groups[role]["labels"] == {"openmaia-pool": role}
    assert "nvidia.com/gpu" not in container(job("pools"))["resources"]["limits"]


def test_no_secret_is_in_the_files():
    text = "".join(path.read_text() for path in (REPOSITORY / "cluster").rglob("*.yaml"))
    assert "stringData" not in text and not re.search(r"hf_\w{8}|sk-\w{8}", text)


def test_a_wrong_overlay_is_refused_by_name(tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text("resources: [../base]\nimages: [{name: a}]\n")
    with pytest.raises(UsageError, match="kubectl kustomize"):
        documents(HOME / "base", [tmp_path])
