"""`openmaia submit`: jobs that say what was asked, are refused before they are submitted, and hold no way out of a value."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from openmaia.checks.job import of_ray, of_slurm
from openmaia.checks.named import packages
from openmaia.checks.stages import require
from openmaia.config.loading import load, to_dict
from openmaia.core.errors import UsageError
from openmaia.distributed.launchers import kuberay, ray, slurm
from tests.conftest import REPOSITORY
from tests.helpers.kuberay_schema import Document, mistakes

LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]
MACHINE = REPOSITORY / "configs/machine"
HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "a; touch pwned", "a && touch pwned", "a | touch pwned", "a\n- touch pwned: x",
    "'; touch pwned; '", '"; touch pwned; "', "a' \"b\\", "$HOME", "> pwned", "a\ttouch", "{x: y}: [", "*anchor", "--help",
    "---\nkind: Pod", "é 神経細胞", "!!python/object/apply:os.system [touch pwned]",
]  # fmt: skip
RECORDER = """#!{python}
import json, os, sys
with open({out!r}, "w") as stream:
    json.dump({{"arguments": sys.argv[1:], "input": "" if sys.stdin.isatty() else sys.stdin.read(),
               "python": os.environ.get("OPENMAIA_PYTHON")}}, stream)
print({says!r})
sys.exit({code})
"""


def program(folder: Path, name: str, says: str = "", code: int = 0) -> Path:
    """A program of that name, in front on PATH, that writes down what it was given; returns where."""
    out = folder / f"{name}.json"
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(RECORDER.format(python=sys.executable, out=str(out), says=says, code=code))
    path.chmod(0o755)
    return out


def command(*arguments: str, path: Path | None = None, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    search = f"{path}/bin:/usr/bin:/bin" if path else "/nowhere"
    return subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", "submit", *arguments],
        env={**os.environ, "PATH": search, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"},
        capture_output=True, text=True, timeout=120, cwd=cwd, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def below(folder: Path) -> list[str]:
    """Where every node of a cluster would see them."""
    return [f"paths.runs={folder}/runs", f"paths.exemplars={folder}/exemplars"]


def hostile(value: str) -> list[str]:
    return [*LEAST, f"exemplars.dataset={json.dumps(value)}"]


# -- SLURM -------------------------------------------------------------------------------------------------------------


def test_a_slurm_job_is_as_large_as_the_config_says(tmp_path: Path):
    sources = [*LEAST, str(MACHINE / "many-nodes.yaml"), *below(tmp_path)]
    job = slurm.prepare([load(sources)], sources, ["--partition=gpu"])
    assert {"--nodes=4", "--cpus-per-task=64", "--mem=256G", "--gpus-per-node=8", "--time=2880"} <= set(job.command)
    script = job.command.index(str(REPOSITORY / "cluster/slurm/openmaia.sbatch"))
    assert job.command[script - 1] == "--partition=gpu"
    assert job.command[script + 1 :] == sources


@pytest.mark.parametrize("value", HOSTILE)
def test_the_printed_slurm_job_gives_a_shell_the_same_words(value: str, tmp_path: Path):
    sources = [*hostile(value), *below(tmp_path)]
    job = slurm.prepare([load([*LEAST, *below(tmp_path)])], sources, [])
    out = program(tmp_path, "sbatch")
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", str(job)], env=path, cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    assert json.loads(out.read_text())["arguments"][-len(sources) :] == sources
    assert not (tmp_path / "pwned").exists()


def test_submitting_to_slurm_hands_over_the_job_and_says_how_to_follow_it(tmp_path: Path):
    out = program(tmp_path, "sbatch", says="4711;cluster")
    done = command("slurm", *LEAST, *below(tmp_path), path=tmp_path)
    assert done.returncode == 0, done.stderr
    given = json.loads(out.read_text())
    assert given["arguments"][-2:] == below(tmp_path) and given["python"] == sys.executable
    assert "SLURM job 4711\n" in done.stdout and f"openmaia show {tmp_path}/runs/x" in done.stdout


def test_what_slurm_refuses_is_one_message(tmp_path: Path):
    program(tmp_path, "sbatch", code=1)
    done = command("slurm", *LEAST, *below(tmp_path), path=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: sbatch did not take the job")


@pytest.mark.parametrize(("where", "name"), [("slurm", "sbatch"), ("kuberay", "kubectl")])
def test_a_missing_program_is_one_message(where: str, name: str, tmp_path: Path):
    done = command(where, *LEAST, *(below(tmp_path) if where == "slurm" else ()))
    assert done.returncode == 2 and done.stderr.startswith(f"error: {name} is not on PATH"), done.stderr
    assert "Traceback" not in done.stderr and "--dry-run" in done.stderr


@pytest.mark.parametrize("name", ["slurm", "kuberay"])
def test_a_job_too_small_for_its_pools_is_refused_by_name(name: str):
    given = [str(MACHINE / "eight-gpus.yaml"), "job.gpus=2"]
    done = command(name, *LEAST, *given, "--dry-run")
    assert done.returncode == 2 and "job.gpus=2" in done.stderr and "3 of generator" not in done.stdout
    assert "no room for" in done.stderr and "replicas" not in done.stdout


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        require(of_slurm([load([*LEAST, *below(tmp_path / "file")])], LEAST))


def test_submit_refuses_a_relative_folder():
    with pytest.raises(UsageError, match="paths.exemplars='exemplars' is relative"):
        require(of_slurm([load([*LEAST, "paths.runs=/shared/runs"])], LEAST))


def test_submit_names_a_missing_package():
    config = load([*LEAST, "backbone.kind=vllm", "backbone.model=m"])
    messages = [result.message for result in packages(config, ())]
    assert any("backbone.kind=vllm needs the package vllm" in message for message in messages), messages


@pytest.mark.slow
def test_several_sweeps_of_one_command_are_one_job(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nunits: all\ntarget: {{name: t, kind: closed_form}}\n")
    (tmp_path / "both.yaml").write_text("sweeps: [a.yaml, b.yaml]\n")
    for where in ("slurm", "ray"):
        sources = ["both.yaml", *below(tmp_path)]
        done = command(where, *sources, "--dry-run", cwd=tmp_path)
        assert done.returncode == 0 and "both.yaml" in done.stdout, done.stderr


def test_a_word_that_is_no_option_of_sbatch_is_refused():
    with pytest.raises(UsageError, match="--option="):
        slurm.prepare([load(LEAST)], LEAST, ["gpu"])


# -- KubeRay -----------------------------------------------------------------------------------------------------------


def kube(
    *sources: str, by_pool: bool = False, image: str | None = None
) -> tuple[kuberay.KubeRayJob, Document, Document]:
    job = kuberay.prepare(load([*LEAST, *sources]), image, "", by_pool=by_pool)
    settings, made = yaml.safe_load_all(str(job))
    return job, settings, made


def groups(made: Document) -> dict[str, Document]:
    return {group["groupName"]: group for group in made["spec"]["rayClusterSpec"]["workerGroupSpecs"]}


def limits(group: Document) -> Document:
    return group["template"]["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize("machine", ["laptop", "one-24gb", "one-80gb", "eight-gpus", "many-nodes"])
def test_a_filled_in_job_follows_its_schema(machine: str):
    _, settings, made = kube(str(MACHINE / f"{machine}.yaml"))
    assert mistakes(settings) + mistakes(made) == []


def test_nodes_are_as_large_as_the_config_says():
    _, _, made = kube(str(MACHINE / "many-nodes.yaml"))
    group = groups(made)["nodes"]
    assert limits(group) == {"cpu": 64, "memory": "256Gi", "nvidia.com/gpu": 8}
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (4, 4, 4)
    assert made["spec"]["activeDeadlineSeconds"] == 48 * 3600


def test_the_head_is_as_large_as_the_config_says():
    _, _, made = kube("job.head_cpus=12", "job.head_memory_gb=40")
    head = made["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert limits(head) == {"cpu": 12, "memory": "40Gi"}
    assert head["template"]["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] == "14Gi"


def test_each_service_gets_pods_for_its_replicas_and_is_pinned_to_them():
    given = ["pools.backbone.num_gpus=4", "pools.backbone.min_replicas=3", "pools.generator.num_gpus=0.5", "job.cpus=8"]
    _, settings, made = kube(*given, "pools.generator.min_replicas=5", by_pool=True)
    found = groups(made)
    assert set(found) == {"nodes", "backbone", "generator"}
    assert (found["backbone"]["replicas"], limits(found["backbone"])["nvidia.com/gpu"]) == (3, 4)
    assert (found["generator"]["replicas"], limits(found["generator"])["nvidia.com/gpu"]) == (3, 1)
    pools = yaml.safe_load(settings["data"]["config.yaml"])["pools"]
    assert pools["backbone"]["node_labels"] == {"openmaia-pool": "backbone"} == found["backbone"]["labels"]
    assert pools["target"]["node_labels"] == {}


def test_an_autoscaled_cluster_begins_without_workers():
    _, settings, made = kube("job.nodes=3", "job.gpus=0", "ray.autoscaling=true")
    assert yaml.safe_load(settings["data"]["config.yaml"])["ray"]["autoscaling"] is True
    assert (groups(made)["nodes"]["minReplicas"], groups(made)["nodes"]["maxReplicas"]) == (0, 3)
    assert made["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] is True


def test_an_autoscaled_group_may_grow_to_the_largest_number_of_replicas():
    given = ["pools.generator.num_gpus=0.5", "pools.generator.max_replicas=6", "ray.autoscaling=true"]
    group = groups(kube(*given, by_pool=True)[2])["generator"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 3)


def test_pods_of_a_pool_have_the_cpus_of_their_replicas():
    found = groups(kube("pools.generator.num_gpus=0.5", "pools.generator.num_cpus=6", by_pool=True)[2])
    assert limits(found["generator"])["cpu"] == 12


def test_the_config_in_the_pods_is_the_one_given_but_for_where_it_runs():
    _, settings, made = kube("units=a=3", "seed=7", "paths.runs=runs")
    inside = load_text(settings["data"]["config.yaml"])
    given = to_dict(load([*LEAST, "units=a=3", "seed=7"]))
    assert {key for key in given if given[key] != inside[key]} == {"ray", "paths"}
    assert inside["paths"]["runs"] == "/shared/runs" and inside["ray"]["address"] == "auto"
    mounts = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    folder = next(each["mountPath"] for each in mounts if each["name"] == "config")
    assert made["spec"]["entrypoint"] == f"python -m ray_jobs run {folder}/config.yaml"


def load_text(text: str) -> dict[str, Any]:
    """As the run in the pod will read it."""
    return yaml.safe_load(text)


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_gets_out_of_the_config(value: str):
    sources = hostile(value)
    job, settings, made = kube(*sources[len(LEAST) :])
    assert load_text(settings["data"]["config.yaml"])["exemplars"]["dataset"] == load(sources).exemplars.dataset
    assert [each["kind"] for each in job.documents] == ["ConfigMap", "RayJob"]
    assert "touch" not in yaml.safe_dump(made)


@pytest.mark.parametrize("name", ["Demo_3", "é" * 60, "a" * 200, "3-runs", "x; touch pwned", "a.b"])
def test_any_run_has_a_name_that_kubernetes_takes(name: str):
    _, _, made = kube(f"name={json.dumps(name)}")
    assert mistakes(made) == []


def test_every_submission_has_a_name_of_its_own():
    assert kube()[0].name != kube()[0].name


def test_submitting_to_kubernetes_hands_over_what_a_dry_run_prints(tmp_path: Path):
    out = program(tmp_path, "kubectl")
    done = command("kuberay", *LEAST, "--namespace=science", "--image=registry/openmaia:3", path=tmp_path)
    assert done.returncode == 0, done.stderr
    given = json.loads(out.read_text())
    assert given["arguments"] == ["apply", "--namespace=science", "--filename=-"]
    settings, made = yaml.safe_load_all(given["input"])
    assert mistakes(settings) + mistakes(made) == []
    assert given["input"].count("image: registry/openmaia:3\n") == 3
    assert f"kubectl --namespace=science logs --follow job/{made['metadata']['name']}" in done.stdout


@pytest.mark.parametrize("path", ["../runs", "/home/me/runs", "/sharedruns"])
def test_a_folder_that_is_not_on_the_volume_of_the_pods_is_refused(path: str):
    with pytest.raises(UsageError, match="is not on the volume of the pods"):
        kube(f"paths.runs={path}")


def test_objects_have_room_in_shared_memory():
    _, _, made = kube("job.memory_gb=100")
    volumes = groups(made)["nodes"]["template"]["spec"]["volumes"]
    assert volumes[1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "35Gi"}


# -- Ray ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", HOSTILE)
def test_the_shell_on_the_cluster_gets_the_same_words(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sources = [*hostile(value), "paths.runs=/a", "paths.exemplars=/b"]
    job = ray.prepare([load([*LEAST, *sources[-2:]])], sources, None)
    out = program(tmp_path, "python")
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    subprocess.run(job.entrypoint, shell=True, env=path, check=True, stdin=subprocess.DEVNULL)
    assert json.loads(out.read_text())["arguments"] == ["-m", "ray_jobs", "run", *sources]
    assert not (tmp_path / "pwned").exists()


def test_a_config_outside_of_the_working_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sources = [*LEAST, "paths.runs=/a", "paths.exemplars=/b", str(MACHINE / "laptop.yaml")]
    with pytest.raises(UsageError, match="lies outside of"):
        ray.prepare([load(sources)], sources, None)


def test_a_relative_folder_for_the_runs_is_refused():
    with pytest.raises(UsageError, match="paths.runs='runs' is relative"):
        require(of_ray([load(LEAST)], LEAST))


@pytest.mark.slow
def test_an_address_where_nobody_answers_is_one_message():
    given = [*LEAST, "paths.runs=/a", "paths.exemplars=/b"]
    done = command("ray", *given, "--address=http://127.0.0.1:9")
    assert done.returncode == 2 and done.stderr.startswith("error: --address=http://127.0.0.1:9"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_prints_what_would_be_submitted():
    done = command("ray", *LEAST, "paths.runs=/a b", "paths.exemplars=/b", "--dry-run")
    said = yaml.safe_load(done.stdout)
    assert shlex.split(said["entrypoint"])[-2:] == ["paths.runs=/a b", "paths.exemplars=/b"]
    assert said["runtime_env"]["working_dir"] == str(REPOSITORY)


def runtime_env(*given: str) -> ray.RayClusterJob:
    sources = [*LEAST, "paths.runs=/a", "paths.exemplars=/b", *given]
    return ray.prepare([load(sources)], sources, None)


def test_a_runtime_environment_names_local_requirements_as_ray_does():
    for installer in ("pip", "uv"):
        made = runtime_env(f'job.runtime_env.{installer}=[".[gpu]", ./a.whl, numpy]').runtime_env
        here = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
        assert made[installer] == [f"{here}[gpu]", f"{here}/a.whl", "numpy"] and "working_dir" in made


def test_an_image_is_the_whole_runtime_environment():
    assert runtime_env("job.runtime_env.image_uri=openmaia:1").runtime_env == {"image_uri": "openmaia:1"}


def test_a_python_of_the_cluster_runs_the_driver_and_the_workers():
    made = runtime_env("job.runtime_env.py_executable=/shared/bin/python")
    assert made.entrypoint.startswith("/shared/bin/python -m ray_jobs run")
    assert made.runtime_env["py_executable"] == "/shared/bin/python"


def test_the_values_of_variables_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    made = runtime_env("job.runtime_env.env_vars=[MY_TOKEN]")
    assert "MY_TOKEN" in str(made) and "hunter2" not in f"{made!s}{made!r}"
    done = command(
        "ray", *LEAST, "paths.runs=/a", "paths.exemplars=/b", "job.runtime_env.env_vars=[MY_TOKEN]", "--dry-run"
    )
    assert done.returncode == 0 and "hunter2" not in done.stdout + done.stderr
    failed = command(
        "ray",
        *LEAST,
        "paths.runs=/a",
        "paths.exemplars=/b",
        "job.runtime_env.env_vars=[MY_TOKEN]",
        "--address=http://127.0.0.1:9",
    )
    assert failed.returncode == 2 and "hunter2" not in failed.stdout + failed.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("job.runtime_env.pipp=[numpy]", "pip"),
        ("job.runtime_env={pip: [a], uv: [b]}", "give one of pip, uv, image_uri, py_executable"),
        ("job.runtime_env.env_vars=[NOT_SET_ANYWHERE]", "NOT_SET_ANYWHERE not set"),
        ("job.runtime_env.env_vars=[A=hunter2]", "expected names"),
    ],
)
def test_a_wrong_runtime_environment_is_one_message(given: str, words: str):
    with pytest.raises(UsageError, match=words) as raised:
        runtime_env(given)
    assert "hunter2" not in raised.value.message
