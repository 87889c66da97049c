"""What investigations cost: shares of batches, in the turn, the record, the summary and the report."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow.parquet as pq
import pytest

from openmaia.agent.metering import metered
from openmaia.analysis.costs.totals import costs
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, Probe, Services, ServiceUsage, UsageLedger
from openmaia.core.units import Unit
from openmaia.distributed.pools.handles import Pools
from openmaia.distributed.pools.replica import Replica
from openmaia.reporting.browser.rows import summarize_run
from openmaia.reporting.tables import make_rows
from openmaia.runs.parquet import read_record, read_turn, write_record, write_turn
from openmaia.runs.run import Run
from openmaia.runs.summary import summary as header
from tests.conftest import REPOSITORY
from tests.helpers import samples
from tests.helpers.run_pools import target_pool
from tests.helpers.samples import comparable
from tests.reporting import making

UNIT = Unit(target="net", layer="conv", index=1)
GREYS = [
    Probe(unit=UNIT, image=EncodedImage.of(np.full((64, 64, 3), level, dtype=np.uint8))) for level in range(10, 250, 8)
]


# -- a replica -------------------------------------------------------------------------------------------------------


class Talking:
    """Answers chats that are there together at the same time."""

    def __init__(self, chats: int):
        self._barrier = Barrier(chats, timeout=60)

    def reply(self, requests: Sequence[int]) -> list[int]:
        self._barrier.wait()
        time.sleep(0.2)
        self._barrier.wait()
        return list(requests)


@pytest.mark.parametrize("chats", [1, 4])
def test_concurrent_chats_share_the_time_of_their_replica(chats: int):
    replica = Replica("backbone-0", lambda: None, serial=False, _host=Talking(chats))
    with ThreadPoolExecutor(chats) as threads:
        began = time.monotonic()
        spent = [seconds for _, seconds in threads.map(lambda n: replica._call("reply", [n]), range(chats))]
        took = time.monotonic() - began
    assert all(one >= 0.2 / chats for one in spent)
    # They end at the same time, in some order: the last one is alone, the one before shares with it, and so on.
    assert sum(spent) <= took * sum(1 / together for together in range(1, chats + 1))


# -- the ledger ------------------------------------------------------------------------------------------------------


def test_gpu_seconds_are_seconds_times_the_gpus_of_a_replica():
    ledger = UsageLedger()
    ledger.add("generator", requests=3, seconds=2.0, gpus=0.5)
    ledger.add("generator", requests=1, seconds=4.0, gpus=0.5)
    assert ledger.spent() == {"generator": ServiceUsage(requests=4, seconds=6.0, gpu_seconds=3.0)}


def test_a_turn_is_charged_what_came_after_it_began():
    ledger = UsageLedger()
    ledger.add("target", requests=2, seconds=1.0, gpus=1)
    ledger.add("editor", requests=1, seconds=1.0, gpus=1)
    before = ledger.spent()
    ledger.add("target", requests=5, seconds=0.25, gpus=1)
    assert ledger.since(before) == {"target": ServiceUsage(requests=5, seconds=0.25, gpu_seconds=0.25)}


class Slow:
    """Takes 20 ms for a call."""

    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        time.sleep(0.02)
        return [GeneratedImage(image=samples.noise(0)) for _ in requests]


def test_a_host_in_this_process_is_charged_by_its_calls():
    ledger = UsageLedger()
    asked = [Generation(prompt="a dog", seed=seed) for seed in range(3)]
    assert len(metered(Slow(), "generator", ledger, 2.0).generate(asked)) == 3
    spent = ledger.spent()["generator"]
    assert spent.requests == 3
    assert 0.02 <= spent.seconds < 30
    assert spent.gpu_seconds == 2 * spent.seconds


# -- pools -----------------------------------------------------------------------------------------------------------


def config(*overrides: str) -> Config:
    own = [
        "target.kind=network",
        "target.name=net",
        "target.network=tests.helpers.networks:deadly",
        "target.layers=[conv]",
    ]
    return load([str(REPOSITORY / "configs/closed-form.yaml"), *own, *overrides])


def of(made: Pools, caller: str) -> tuple[Services, UsageLedger]:
    class Nothing:
        def read(self, unit: Unit):
            raise AssertionError("no exemplars are read here")

    services = made.services(Nothing(), caller)
    return services, services.ledger


@pytest.fixture(scope="module")
def served(ray_cluster: None) -> Iterator[Pools]:
    with target_pool(config("pools.target.min_replicas=2", "pools.target.max_batch=7")) as made:
        yield made


@pytest.mark.slow
def test_callers_are_charged_no_more_than_the_time_replicas_were_busy(served: Pools):
    callers = [of(served, f"caller {n}") for n in range(6)]
    callers[0][0].target.probe(GREYS[:1])
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda caller: caller[0].target.probe(GREYS), callers))
    charged = [ledger.spent()["target"] for _, ledger in callers]
    assert [spent.requests for spent in charged] == [31, 30, 30, 30, 30, 30]
    assert all(spent.seconds > 0 for spent in charged)
    busy = served.statistics()["target"].busy_seconds
    assert 0 < sum(spent.seconds for spent in charged) <= busy, "callers pay for the host's time, not for the way to it"
    assert all(spent.gpu_seconds == 0 for spent in charged)


@pytest.mark.slow
def test_a_call_for_nothing_costs_nothing(served: Pools):
    services, ledger = of(served, "a")
    assert services.target.probe([]) == []
    assert ledger.spent() == {}


# -- records ---------------------------------------------------------------------------------------------------------


def test_turns_and_records_keep_what_was_spent():
    turn = samples.turn()
    assert turn.spent
    assert read_turn(write_turn(turn)).spent == turn.spent
    record = samples.record()
    assert read_record(write_record(record)).spent == record.spent
    assert record.spent["backbone"] == ServiceUsage(requests=2, seconds=2.5, gpu_seconds=5.0)


def test_costs_do_not_enter_what_makes_records_comparable():
    free = samples.record(turns=(samples.turn(0, spent={}), samples.turn(1, spent={})))
    assert comparable(free) == comparable(samples.record())


def test_totals_add_up_over_investigations():
    """Two records of two turns each; a turn: backbone 1.25 s on 2 GPUs, target 0.125 s on half a GPU, 2 s, 120 tokens."""
    found = costs([header(samples.record()), header(samples.record())])
    assert found.investigations == 2
    assert found.services == {
        "target": ServiceUsage(requests=8, seconds=0.5, gpu_seconds=0.25),
        "backbone": ServiceUsage(requests=4, seconds=5.0, gpu_seconds=10.0),
    }
    assert (found.gpu_seconds, found.seconds) == (10.25, 8.0)
    assert (found.prompt_tokens, found.cached_tokens, found.generated_tokens) == (400, 40, 80)


def test_without_records_nothing_was_spent():
    found = costs([])
    assert (found.investigations, found.gpu_seconds, dict(found.services)) == (0, 0, {})


def test_time_of_a_service_is_that_of_its_gpus_if_it_has_some():
    spent = {"backbone": ServiceUsage(requests=2, seconds=2.5, gpu_seconds=5.0), "target": ServiceUsage(requests=4, seconds=0.5)}  # fmt: skip
    found = costs([header(samples.record()) | {"spent": {service: asdict(usage) for service, usage in spent.items()}}])
    times = {each.service: (each.seconds, each.is_on_gpus) for each in found.times}
    assert times == {"backbone": (5.0, True), "target": (0.5, False)}


def test_the_summary_has_a_column_for_each_cost(tmp_path: Path):
    run = Run.create(load(["name=x", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    run.publish(samples.record())
    run.write_summary()
    row = pq.read_table(tmp_path / "x/summary.parquet").to_pylist()[0]
    assert (row["backbone_requests"], row["backbone_seconds"], row["backbone_gpu_seconds"]) == (2, 2.5, 5.0)
    assert (row["editor_requests"], row["editor_seconds"], row["editor_gpu_seconds"]) == (0, 0.0, 0.0)
    assert (row["prompt_tokens"], row["cached_tokens"], row["generated_tokens"]) == (200, 20, 40)


def test_the_report_shows_costs_of_the_run_and_of_a_unit(tmp_path: Path):
    from openmaia.reporting.browser.write import write_report

    run = Run.create(load(["name=x", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    run.publish(samples.record())
    index = making.Page(write_report([run]).with_name("run.html").read_text())
    page = making.Page(next((tmp_path / "x/report/units").rglob("*.html")).read_text())
    for shown in (index, page):
        text = " ".join(shown.text.split())
        assert "Tokens 200 prompt, of these 20 cached; 40 generated" in text
        assert "backbone 5 s of GPUs" in text
        assert "target 0.12 s of GPUs" in text
    assert summarize_run(run, "x", make_rows(run, "x", "")).costs.gpu_seconds == 5.125
