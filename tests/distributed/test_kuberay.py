"""Manifests for KubeRay: what Kubernetes and the operator would refuse, or leave out without a word."""

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
from openmaia.distributed.launchers import kuberay
from tests.conftest import REPOSITORY
from tests.helpers.kuberay_schema import Document, mistakes

HOME = REPOSITORY / "cluster/kuberay"
MACHINE = REPOSITORY / "configs/machine"
LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
JOBS: dict[str, tuple[list[str], bool]] = {
    "laptop": ([str(MACHINE / "laptop.yaml")], False),
    "gpus": ([str(MACHINE / "eight-gpus.yaml")], False),
    "pools": ([str(MACHINE / "eight-gpus.yaml")], True),
    "growing": ([str(MACHINE / "many-nodes.yaml"), "ray.autoscaling=true"], False),
    "growing pools": ([str(MACHINE / "many-nodes.yaml"), "ray.autoscaling=true"], True),
}
"""Settings of jobs, and whether each pool has a worker group. Beside them is "", the file as it stands."""

NAMES = ["", *JOBS]


def documents(name: str = "") -> list[Document]:
    if not name:
        files = [HOME / "storage.yaml", HOME / "rayjob.yaml"]
        return [each for path in files for each in yaml.safe_load_all(path.read_text())]
    sources, by_pool = JOBS[name]
    return list(yaml.safe_load_all(str(kuberay.prepare(load([*LEAST, *sources]), None, "", by_pool=by_pool))))


def job(name: str = "") -> Document:
    return next(each for each in documents(name) if each["kind"] == "RayJob")


def pods(document: Document) -> list[Document]:
    cluster = document["spec"]["rayClusterSpec"]
    groups = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [document["spec"]["submitterPodTemplate"]["spec"], *groups]


@pytest.mark.parametrize("name", NAMES)
def test_every_manifest_follows_its_schema_and_the_operators_rules(name: str):
    assert [mistake for document in documents(name) for mistake in mistakes(document)] == []


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_the_kustomization_of_the_documentation_changes_what_it_says(tmp_path: Path):
    page = (REPOSITORY / "docs/how-to/kubernetes.md").read_text()
    found = re.search(r"^```yaml\n(# kustomization.yaml\n.*?)^```$", page, re.M | re.S)
    assert found
    (tmp_path / "kustomization.yaml").write_text(found[1])
    (tmp_path / "openmaia.yaml").write_text(yaml.safe_dump_all(documents("gpus")))
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=True)
    made = list(yaml.safe_load_all(done.stdout))
    assert [mistake for document in made for mistake in mistakes(document)] == []
    assert {each["metadata"]["namespace"] for each in made} == {"science"}
    changed = next(each for each in made if each["kind"] == "RayJob")
    submitter, head, worker = pods(changed)
    assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in (submitter, head, worker))
    assert all(pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "mine"} for pod in (head, worker))
    assert "nodeSelector" in worker and "nodeSelector" not in head
    assert changed["spec"]["suspend"] and changed["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "openmaia"


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
    wrong = copy.deepcopy(job("gpus"))
    change(wrong)
    assert any(words in mistake for mistake in mistakes(wrong)), mistakes(wrong)


def test_a_mistake_in_a_claim_is_found():
    claim = next(each for each in documents() if each["kind"] == "PersistentVolumeClaim")
    claim["spec"]["accessMode"] = claim["spec"].pop("accessModes")
    assert "accessMode" in mistakes(claim)[0]


# -- what the launchers name is there ----------------------------------------------------------------------------------


def test_the_entry_point_of_the_file_and_the_config_that_it_names_exist():
    python, dash, module, command, *given = job()["spec"]["entrypoint"].split()
    assert (python, dash, command) == ("python", "-m", "run") and find_spec(module) is not None
    inside = "/opt/openmaia/"
    sources = [str(REPOSITORY / each.removeprefix(inside)) if each.startswith(inside) else each for each in given]
    assert load(sources).paths.runs.startswith("/shared/")


def test_images_are_those_that_the_dockerfile_builds():
    stages = set(re.findall(r"^FROM .* AS (\w+)$", (REPOSITORY / "cluster/Dockerfile").read_text(), re.M))
    version = re.search(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), re.M)
    assert version
    for name in NAMES:
        images = {each["image"] for pod in pods(job(name)) for each in pod["containers"]}
        assert images == {f"openmaia:{version[1]}-{'cpu' if name in ('', 'laptop') else 'gpu'}"}
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


@pytest.mark.parametrize("name", NAMES)
def test_no_pod_runs_as_root_or_may_become_more(name: str):
    for each in pods(job(name)):
        assert each["securityContext"]["runAsNonRoot"] and each["securityContext"]["runAsUser"]
        assert all(c["securityContext"]["allowPrivilegeEscalation"] is False for c in each["containers"])


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_driver_buys_no_new_cluster_and_a_lost_head_is_tried_again(name: str):
    """tests/cluster/test_runtime_env.py shows when the submitter fails."""
    wanted = job(name)["spec"]
    assert wanted["backoffLimit"] == 0 and wanted["submitterConfig"]["backoffLimit"] > 0
    assert wanted["submissionMode"] == "K8sJobMode"
    assert wanted["submitterPodTemplate"]["spec"]["restartPolicy"] == "Never"


def test_without_gpus_none_is_asked_for():
    assert "nvidia" not in yaml.safe_dump(job("laptop"))


def test_pods_with_gpus_go_to_nodes_that_are_kept_for_gpus():
    found = cluster(job("pools"))["workerGroupSpecs"]
    assert {group["groupName"] for group in found} == {"nodes", "target", "generator", "editor", "backbone"}
    for group in found:
        pod = group["template"]["spec"]
        has_gpus = "nvidia.com/gpu" in pod["containers"][0]["resources"]["limits"]
        assert has_gpus == ("tolerations" in pod) == (group["groupName"] != "nodes")


def test_no_secret_is_in_the_files():
    text = "".join(path.read_text() for path in (REPOSITORY / "cluster").rglob("*.yaml"))
    assert "stringData" not in text and not re.search(r"hf_\w{8}|sk-\w{8}", text)
