"""What is wrong with a cluster is said before anything is loaded, on a cluster of two real nodes with pretended GPUs."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from openmaia.config.loading import load
from openmaia.config.machine import POOLS
from openmaia.core.errors import ServiceError
from openmaia.distributed import LOOPBACK_VARIABLE
from openmaia.distributed.cluster import preflight, resources
from openmaia.distributed.cluster.nodes import alive, run_on
from openmaia.distributed.cluster.resources import NodeResources, ResourceRequest, too_wide, unplaced, unused_gpus
from openmaia.runs.files import Files
from tests.conftest import RAY, REPOSITORY, free_port
from tests.helpers.commands import refused

LEAST = ["name=x", "units=all", "target.name=t", "target.kind=closed_form"]

# -- placing, without a cluster ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "nodes", "short"),
    [
        ([ResourceRequest(name="a", count=2, gpus=0.5)], [NodeResources(gpus=1)], {}),
        ([ResourceRequest(name="a", count=3, gpus=0.5)], [NodeResources(gpus=1)], {"a": 1}),
        ([ResourceRequest(name="a", count=2, gpus=0.6)], [NodeResources(gpus=1)], {"a": 1}),
        ([ResourceRequest(name="a", count=1, gpus=2)], [NodeResources(gpus=1), NodeResources(gpus=1)], {"a": 1}),
        (
            [ResourceRequest(name="a", count=3, gpus=1), ResourceRequest(name="b", count=2, gpus=4)],
            [NodeResources(gpus=8), NodeResources(gpus=4)],
            {},
        ),
        (
            [ResourceRequest(name="a", count=1, gpus=1, cpus=4)],
            [NodeResources(gpus=2, cpus=3), NodeResources(gpus=0, cpus=8)],
            {"a": 1},
        ),
        ([ResourceRequest(name="a", count=2, memory=3)], [NodeResources(memory=4), NodeResources(memory=2)], {"a": 1}),
        ([ResourceRequest(name="a", count=3, cpus=0.1)], [NodeResources(cpus=0.3)], {}),
        (
            [ResourceRequest(name="a", count=1, labels={"kind": "big"})],
            [NodeResources(), NodeResources(labels={"kind": "small"})],
            {"a": 1},
        ),
        (
            [ResourceRequest(name="a", count=1, labels={"kind": "big"})],
            [NodeResources(labels={"kind": "big", "rack": "3"})],
            {},
        ),
        (
            [
                ResourceRequest(name="either", count=2, gpus=1, labels={"card": "in(a100, h100)"}),
                ResourceRequest(name="others", count=2, gpus=1, labels={"card": "!in(a100,h100)"}),
                ResourceRequest(name="not", count=2, gpus=1, labels={"card": "!l4"}),
            ],
            [NodeResources(gpus=1, labels={"card": card}) for card in ("a100", "h100", "l4")] + [NodeResources(gpus=1)],
            {"not": 2},
        ),
    ],
)
def test_what_finds_no_place_is_counted(
    claims: list[ResourceRequest], nodes: list[NodeResources], short: dict[str, int]
):
    assert unplaced(claims, nodes) == short


@pytest.mark.parametrize(
    ("pools", "refused"),
    [
        ([], False),
        ([ResourceRequest(name="backbone", count=1, gpus=4)], False),
        ([ResourceRequest(name="target", count=1, gpus=0.5), ResourceRequest(name="backbone", count=1, gpus=5)], True),
    ],
)
def test_replica_with_more_gpus_than_any_node_is_refused(pools: list[ResourceRequest], refused: bool):
    reason = (
        "pools.backbone.num_gpus=5, but no node has more than 4, and a replica cannot span nodes: give fewer, or serve so "
        "large a model with vLLM and use it as an endpoint"
    )
    assert too_wide(pools, [NodeResources(gpus=4), NodeResources(gpus=1)]) == (reason if refused else "")


@pytest.mark.parametrize(
    ("gpus", "requested", "said"), [(0, 0.0, ""), (2, 0.5, ""), (2, 0.0, "no pool requests one of the 2 GPUs")]
)
def test_gpus_that_no_pool_requests_are_named(gpus: int, requested: float, said: str):
    config = load([str(REPOSITORY / "configs/closed-form.yaml"), f"pools.target.num_gpus={requested}"])
    found = unused_gpus([config], [NodeResources(gpus=gpus, cpus=4)])
    assert bool(found) == bool(said)
    assert said in found


MACHINES = {
    "laptop": [NodeResources(gpus=0, cpus=2, memory=4 * 2**30)],
    "one-24gb": [NodeResources(gpus=1, cpus=8, memory=32 * 2**30)],
    "one-80gb": [NodeResources(gpus=1, cpus=16, memory=64 * 2**30)],
    "eight-gpus": [NodeResources(gpus=8, cpus=64, memory=256 * 2**30)],
    "eight-gpus-pairs": [NodeResources(gpus=8, cpus=64, memory=256 * 2**30)],
    "many-nodes": [NodeResources(gpus=8, cpus=64, memory=256 * 2**30)] * 4,
}


@pytest.mark.parametrize("name", [path.stem for path in sorted((REPOSITORY / "configs/machine").glob("*.yaml"))])
def test_a_machine_config_fills_the_machine_that_it_is_for(name: str):
    config = load([*LEAST, str(REPOSITORY / f"configs/machine/{name}.yaml")])
    pools, nodes = resources.of_pools([config]), MACHINES[name]
    assert unplaced([*pools, resources.of_investigations(config)], nodes) == {}
    settings = [getattr(config.pools, role) for role in POOLS]
    gpus = sum(node.gpus for node in nodes)
    assert sum(pool.min_replicas * pool.num_gpus for pool in settings) <= gpus
    assert sum(max(pool.min_replicas, pool.max_replicas) * pool.num_gpus for pool in settings) >= gpus - 1e-6


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_what_a_machine_config_asks_of_slurm_is_enough_for_its_pools(name: str):
    config = load([*LEAST, str(REPOSITORY / f"configs/machine/{name}.yaml")])
    job = config.job
    nodes = [NodeResources(gpus=job.gpus, cpus=job.cpus, memory=job.memory_gb * 2**30)] * job.nodes
    assert unplaced([*resources.of_pools([config]), resources.of_investigations(config)], nodes) == {}


@pytest.mark.parametrize(
    ("share", "workers", "gpus"), [("0.05", 0, 0.25), ("0.05", 8, 0.05), ("1", 0, 1.0), ("0", 0, 0.0), ("0.5", 0, 0.5)]
)
def test_a_worker_for_exemplars_takes_a_quarter_of_a_gpu_if_nobody_says_how_many_there_are(
    share: str, workers: int, gpus: float
):
    config = load([*LEAST, f"pools.target.num_gpus={share}", f"ray.exemplar_workers={workers}"])
    assert resources.of_exemplars(config).gpus == gpus


@pytest.mark.slow
def test_a_node_that_cannot_be_asked_is_no_mistake_of_the_user(ray_cluster: None, tmp_path: Path):
    gone = {"NodeID": "ab" * 28, "NodeManagerHostname": "gone", "NodeManagerAddress": "192.0.2.1"}
    with pytest.raises(ServiceError, match=r"is not known: gone \(192.0.2.1\) could not be asked"):
        preflight._check([gone], [("paths.runs", Files(str(tmp_path)))], ".canary")


@pytest.mark.slow
def test_a_node_on_which_the_check_fails_is_named_with_the_reason(ray_cluster: None):
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'openmaia'")

    ((_, _, problem),) = run_on(alive(), fails, lambda node: (), 60)
    assert problem == "fails: ModuleNotFoundError: No module named 'openmaia'"


# -- a cluster of two nodes --------------------------------------------------------------------------------------------

DRIVER = """
import json, sys, time
from pathlib import Path
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.distributed.cluster.connection import cluster
from openmaia.distributed.cluster.preflight import check_folders, preflight
from openmaia.runs.files import Files
from openmaia.runs.run import Run

folder, least, cases = json.loads(sys.argv[1])
found = {}
with cluster(load(least)):
    for name, given in cases.items():
        configs = [load([*least, *given, f"name=run-{number}"]) for number in range(2 if name == "two targets" else 1)]
        said = []
        begun = time.monotonic()
        try:
            preflight(configs, [Run.create(config) for config in configs], said.append)
            refused = ""
        except UsageError as error:
            refused = error.message
        found[name] = {"refused": refused, "said": said, "seconds": time.monotonic() - begun}
found["left"] = [str(path) for path in Path(folder).rglob("*canary*")]
print(json.dumps(found))
"""


def node(
    port: int, options: list[str], environment: dict[str, str], covered: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a node; `port` is the head's. covered: folders, and the commands that take them away from this node alone."""
    mounts = "".join(f"{command}; " for command in covered.values())
    start = [RAY, "start", "--block", "--num-cpus=1", "--object-store-memory=80000000", *options]
    if covered:
        # On a busy machine the head takes longer to listen than `ray start --address` waits for it.
        head = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.2; done"
        start = ["unshare", "--mount", "bash", "-c", f'{head}; set -e; {mounts} exec "$@"', "node", *start]
    return subprocess.Popen(
        start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    """The outcome of each case on a head and a worker with a GPU each; the worker joins late and lacks two folders."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to take a folder away from one node")
    folder = tmp_path_factory.mktemp("nodes")
    for name in ("seen", "hidden", "frozen"):
        (folder / name).mkdir()
    (folder / "token").write_text("0123456789abcdef" * 4)
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    # A local Ray in this process, of an earlier test, has asked for a cluster that no other node can join.
    environment.pop(LOOPBACK_VARIABLE, None)
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    port = free_port()
    address = f"127.0.0.1:{port}"
    short = f"/tmp/ray-{os.getpid()}-preflight"
    head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1", f"--temp-dir={short}", "--num-gpus=1"]
    hidden, frozen = folder / "hidden", folder / "frozen"
    covered = {
        "hidden": f"mount -t tmpfs none {hidden}",
        "frozen": f"mount --bind {frozen} {frozen}; mount -o remount,ro,bind {frozen}",
    }
    processes = [node(port, [*head, "--include-dashboard=false"], environment, {})]
    try:
        # The worker is started at once and waits for its head: how long it takes to join is what the driver has to bear.
        processes.append(
            node(port, [f"--address={address}", "--node-ip-address=127.0.0.1", "--num-gpus=1"], environment, covered)
        )
        yield outcome(folder, address, environment)
    finally:
        for process in processes[::-1]:
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(short, ignore_errors=True)


def outcome(folder: Path, address: str, environment: dict[str, str]) -> dict[str, dict[str, object]]:
    least = [*LEAST, f"ray.address={address}", f"paths.exemplars={folder}/seen/exemplars", "ray.wait_seconds=180"]
    seen = f"paths.runs={folder}/seen"
    cases = {
        "late": [seen, "pools.target.min_replicas=2", "pools.target.num_gpus=1"],
        "too many": [seen, "pools.generator.min_replicas=3", "pools.generator.num_gpus=1", "ray.wait_seconds=0.1"],
        "too wide": [seen, "pools.backbone.num_gpus=2", "ray.wait_seconds=2"],
        "two targets": [seen, "pools.target.num_gpus=1", "pools.generator.num_gpus=1", "ray.wait_seconds=0.1"],
        "growing": [seen, "pools.backbone.num_gpus=2", "ray.autoscaling=true"],
        "exemplars": [seen, "pools.target.num_gpus=1", "ray.exemplar_workers=3", "ray.wait_seconds=0.1"],
        "no memory": [seen, "ray.memory_mb=90000000", "ray.wait_seconds=0.1"],
        "some at once": [seen, "ray.cpus_per_investigation=1", "ray.investigations=5"],
        "covered": [f"paths.runs={folder}/frozen", f"paths.exemplars={folder}/hidden/exemplars"],
    }
    until = time.monotonic() + 240  # more than a minute was seen on a busy machine
    while True:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, json.dumps([str(folder), least, cases])],
            env=environment, capture_output=True, text=True, timeout=240, cwd=REPOSITORY,
        )  # fmt: skip
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        assert "no Ray cluster answers" in done.stderr and time.monotonic() < until, done.stderr[-3000:]
        time.sleep(0.5)


@pytest.mark.slow
def test_a_node_that_joins_late_is_waited_for(found: dict[str, dict[str, object]]):
    assert found["late"]["refused"] == ""
    assert "waiting up to 180 s for nodes: no room for 1 of the target's replicas" in str(found["late"]["said"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("too many", ["2 nodes", "2 GPUs", "1 of the generator's replicas", "generator 3 x 1 GPUs"]),
        ("too wide", ["pools.backbone.num_gpus=2, but no node has more than 1", "after 2 s"]),
        ("two targets", ["1 of the target's replicas", "target 1 x 1 GPUs, generator 1 x 1 GPUs, target 1 x 1 GPUs"]),
        ("exemplars", ["ray.exemplar_workers 3 x 1 GPUs"]),
        ("no memory", ["investigations", "ray.memory_mb"]),
    ],
)
def test_what_is_short_is_named(found: dict[str, dict[str, object]], case: str, words: list[str]):
    refused = str(found[case]["refused"])
    assert all(word in refused for word in words), refused


@pytest.mark.slow
def test_it_waits_for_nodes_before_it_refuses(found: dict[str, dict[str, object]]):
    assert float(str(found["too wide"]["seconds"])) >= 2
    assert "waiting up to 2 s" in str(found["too wide"]["said"])


@pytest.mark.slow
def test_a_cluster_that_grows_is_not_compared(found: dict[str, dict[str, object]]):
    assert found["growing"]["refused"] == ""


@pytest.mark.slow
def test_fewer_investigations_at_once_than_wished_are_a_word_and_no_refusal(found: dict[str, dict[str, object]]):
    assert found["some at once"]["refused"] == ""
    unused, fewer = cast(list[str], found["some at once"]["said"])
    assert unused.startswith("no pool requests one of the 2 GPUs here") and "pools.….num_gpus" in unused
    assert fewer == "room for 2 of ray.investigations=5 at once"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "does not see what is written to paths.exemplars=",
        "cannot use paths.runs=",
        "Read-only file system",
        f"{socket.gethostname()} (",
    ],
)
def test_a_node_that_does_not_share_a_folder_is_named_with_the_reason(found: dict[str, dict[str, object]], words: str):
    assert words in str(found["covered"]["refused"])


@pytest.mark.slow
def test_no_canary_is_left_behind(found: dict[str, list[str]]):
    assert found["left"] == []


# -- a run of its own --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_local_run_that_cannot_fit_is_refused_at_once(ray_cluster: None, tmp_path: Path):
    given = [*LEAST, f"paths.runs={tmp_path}", f"paths.exemplars={tmp_path}", "pools.generator.num_gpus=99"]
    assert "pools.generator.num_gpus=99, but no node" in refused("run", *given)
