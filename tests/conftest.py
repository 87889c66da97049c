"""Shared by the end-to-end tests: small runs of the real thing."""

import gc
import os
import random
import re
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.runs.run import Run
from tests.prepare import CACHE, packages

REPOSITORY = Path(__file__).parent.parent
CLUSTER = REPOSITORY / "tests/cluster"
RAY = str(Path(sys.executable).with_name("ray"))

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # for busy machines


RAY_FILES = pytest.StashKey[set[Path]]()
"""The files with tests on the Ray of `ray_cluster`."""
TOGETHER = {"tests/distributed/test_same_records.py": "alone", "tests/offline/test_pixels_only.py": "alone"}
"""Files that share what one process makes, by the name of the fixture."""
GIVEN_PORTS = set[int]()
"""Those that `free_port` returned in this process."""
LOCAL_RAY = ExitStack()
"""Holds that Ray, from the first test that uses it on."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects no garbage while modules are imported by the thousand, of which none becomes garbage: half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests first: what takes minutes must not begin when the other processes are nearly through.

    Before them come the files that share a Ray, which ends after the last of them, and first of all the tests of the
    cluster, which one process runs in turn (`pytest_xdist_make_scheduler`).
    A nightly test is marked slow or cluster, too: `make test` runs what is neither.
    """
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    if wrong := [item.nodeid for item in items if "nightly" in marks[item] and not marks[item] & {"slow", "cluster"}]:
        raise pytest.UsageError(f"marked nightly, but neither slow nor cluster: {', '.join(wrong)}")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    on_ray = {item.path for item in items if "ray_cluster" in getattr(item, "fixturenames", ())}
    config.stash[RAY_FILES] = on_ray
    items.sort(key=lambda item: (CLUSTER not in item.path.parents, item.path not in on_ray, item.path not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file to each process, as `--dist loadfile`, except that one process takes all files of the cluster, and one those
    that are TOGETHER.

    Tests of the cluster start daemons of the whole machine, and mostly wait for them.
    """
    from xdist.scheduler import LoadFileScheduling

    class ClusterTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_cluster = nodeid.startswith(f"{CLUSTER.relative_to(config.rootpath).as_posix()}/")
            scope = super()._split_scope(nodeid)
            return "cluster" if is_cluster else TOGETHER.get(scope, scope)

    return ClusterTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ends the shared Ray before a file that does not use it: an idle one takes 3 % of a core, in each process of the tests."""
    if item.path not in item.config.stash[RAY_FILES]:
        LOCAL_RAY.close()


def pytest_sessionfinish() -> None:
    LOCAL_RAY.close()


UNMET = re.compile(r"apt-get|SLURM|slurm|no chromium|packages-v1|fetched library")
"""What an end-to-end test that is skipped lacks, as it says. Not a GPU, or a kernel with more protections."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip of an end-to-end test is a failure, because the run would be green without it."""
    report = yield
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    if os.environ.get("CI") and report.skipped and UNMET.search(reason):
        report.outcome, report.longrepr = "failed", f"skipped, although CI is set: {reason}"
    return report


@pytest.fixture(scope="session")
def exemplars_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exemplars are computed once per session and shared by the tests that need them."""
    return tmp_path_factory.mktemp("exemplars")


@pytest.fixture(scope="session")
def settings(exemplars_folder: Path) -> list[str]:
    """Overrides that point a shipped config to the test's own folders."""
    packages()
    return [f"paths.cache={CACHE}", f"paths.exemplars={exemplars_folder}"]


@pytest.fixture
def small(settings: list[str], tmp_path: Path) -> Callable[..., Config]:
    """The demo with two units, in a run directory of its own; further overrides as arguments."""

    def make(*overrides: str, runs: str = "runs") -> Config:
        return load([*small_sources(settings, tmp_path / runs), *overrides])

    return make


def small_sources(settings: list[str], runs: Path) -> list[str]:
    return [
        str(REPOSITORY / "configs/efficientnet-lite0.yaml"),
        *settings,
        f"paths.runs={runs}",
        "target.size=112",
        "pictures.limit=120",
        "exemplars.k=8",
        "units=_blocks.10=31:_conv_head=66",
        "evaluate.n=4",
        "evaluate.looks=[]",
        "evaluate.random_words=10",
    ]


@pytest.fixture(scope="session")
def alone(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of `small`, with its evaluation, in this process. It takes most of a minute: see `TOGETHER`."""
    from tests.distributed.test_same_records import in_process

    return in_process(load(small_sources(settings, tmp_path_factory.mktemp("alone"))))


@pytest.fixture(scope="module")
def ray_cluster() -> None:
    """One local Ray for the tests that do not start their own, the same for all files of a process."""
    from openmaia.distributed.cluster.connection import cluster

    # Where this process is connected already, it stays as it is.
    config = load([str(REPOSITORY / "configs/efficientnet-lite0.yaml"), "ray.num_cpus=2"])
    LOCAL_RAY.enter_context(cluster(config))


def free_port() -> int:
    """Returns a port that is free, and but for chance stays so until it is opened: those from 32768 on the kernel gives to
    whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(30_000, 32_700)
        if port in GIVEN_PORTS:
            continue
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            GIVEN_PORTS.add(port)
            return port
