"""Predictions: the simulation against closed forms, the balance against all others, rates, intervals, the command."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from openmaia.cli.main import app
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.core.selection import count
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.reporting.costs.estimate import Prediction, balanced, enough_at_once, estimate, predict
from openmaia.reporting.costs.simulation import SimulatedPool, Trace, simulate
from openmaia.reporting.costs.workload import Workload, from_rates, from_run
from openmaia.runs.run import Run
from tests.helpers import samples

INF = float("inf")


def pool(
    replicas: int = 1, max_batch: int = 1, fixed: float = 0.0, per_item: float = 1.0, gpus: float = 1.0
) -> SimulatedPool:
    return SimulatedPool(replicas=replicas, max_batch=max_batch, fixed=fixed, per_item=per_item, gpus=gpus)


def draws(n: int, seed: int = 0) -> list[Trace]:
    random = np.random.default_rng(seed)

    def trace() -> Trace:
        return [
            step
            for _ in range(int(random.integers(1, 6)))
            for step in (("a", 1), ("", float(random.random())), ("b", int(random.integers(1, 12))))
        ]

    return [trace() for _ in range(n)]


# -- the simulation against closed forms -------------------------------------------------------------------------------


def test_one_service_serves_full_batches():
    """Ten requests, four to a batch of 1 + n/2 seconds: 3 + 3 + 2."""
    ends, queues = simulate([[("a", 1)]] * 10, {"a": pool(max_batch=4, fixed=1.0, per_item=0.5)}, at_once=10)
    assert (ends[-1], queues["a"].busy, queues["a"].requests) == (8.0, 8.0, 10)
    assert ends == [3.0] * 4 + [6.0] * 4 + [8.0] * 2


def test_replicas_share_the_batches():
    ends, _ = simulate([[("a", 1)]] * 16, {"a": pool(replicas=2, max_batch=4, fixed=1.0, per_item=0.5)}, at_once=16)
    assert ends[-1] == 6.0


def test_a_call_is_split_over_replicas_and_ends_with_its_last_request():
    ends, _ = simulate([[("a", 6), ("", 10.0)]], {"a": pool(replicas=2, max_batch=3, fixed=1.0)}, at_once=1)
    assert ends == [4.0 + 10.0]


def test_identical_investigations_are_bound_by_the_bottleneck():
    """A flow shop of equal jobs: the time of the first one, and the longest stage once more for each of the others."""
    pools = {"a": pool(per_item=2.0), "b": pool(per_item=5.0), "c": pool(per_item=1.0)}
    for units in (1, 2, 7, 50):
        ends, _ = simulate([[("a", 1), ("b", 1), ("c", 1)]] * units, pools, at_once=units)
        assert ends[-1] == 2 + 5 + 1 + (units - 1) * 5


def test_at_once_bounds_what_is_under_way():
    """Without services: eight waits of 3 s, two at a time."""
    assert simulate([[("", 3.0)]] * 8, {}, at_once=2)[0][-1] == 12.0


def test_no_simulation_beats_the_work_in_full_batches_and_a_wide_one_comes_near():
    for seed in range(30):
        random = np.random.default_rng(seed)
        pools = {
            name: pool(int(random.integers(1, 4)), int(random.integers(1, 9)), random.random(), random.random())
            for name in "ab"
        }
        for at_once in (1, 3, 40):
            assert simulate(draws(200, seed), pools, at_once)[0][-1] >= least(draws(200, seed), pools) * (1 - 1e-9)
    wide = {"a": pool(2, 8, 1.0, 0.1), "b": pool(2, 8, 1.0, 0.1)}
    assert simulate(draws(3000), wide, 200)[0][-1] < 1.05 * least(draws(3000), wide)


def least(traces: list[Trace], pools: Mapping[str, SimulatedPool]) -> float:
    """Seconds of the busiest service if all its batches are full."""
    asked = {s: sum(amount for trace in traces for name, amount in trace if name == s) for s in pools}
    return max(asked[s] * pool.per_request / pool.replicas for s, pool in pools.items())


def test_every_request_is_served_once():
    traces = draws(100)
    _, queues = simulate(traces, {"a": pool(2, 3, 0.1), "b": pool(3, 5, 0.1)}, 17)
    asked = {s: sum(amount for trace in traces for name, amount in trace if name == s) for s in "ab"}
    assert {service: queue.requests for service, queue in queues.items()} == asked


def test_calls_and_investigations_without_requests_end_at_once():
    ends, queues = simulate([[], [("a", 0), ("a", 1)], [("a", 0)]] * 2000, {"a": pool()}, at_once=1)
    assert (ends[-1], len(ends), queues["a"].requests) == (2000.0, 6000, 2000)


# -- the balance -------------------------------------------------------------------------------------------------------


def cost(stages: list[Mapping[str, float]], counts: Mapping[str, int]) -> float:
    return sum(max((work / counts[service] for service, work in stage.items()), default=0.0) for stage in stages)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_numbers_of_replicas_are_better(seed: int):
    random = np.random.default_rng(seed)
    pools = {s: pool(gpus=random.choice([0.5, 1, 2])) for s in "abc"}
    stages: list[Mapping[str, float]] = [{s: random.uniform(0, 20) for s in "abc"}, {"b": random.uniform(0, 20)}]
    gpus = int(random.integers(6, 16))
    made = balanced(*stages, pools, dict.fromkeys("abc", INF), gpus)
    assert sum(p.replicas * p.gpus for p in made.values()) <= gpus
    ranges = [range(1, int(gpus / p.gpus) + 1) for p in pools.values()]
    others = [dict(zip("abc", counts, strict=True)) for counts in itertools.product(*ranges)]
    fitting = [counts for counts in others if sum(counts[s] * p.gpus for s, p in pools.items()) <= gpus]
    best = min(cost(stages, counts) for counts in fitting)
    assert cost(stages, {s: p.replicas for s, p in made.items()}) == pytest.approx(best)


def test_replicas_are_in_proportion_to_the_work():
    made = balanced({"a": 6.0, "b": 2.0}, {}, {"a": pool(), "b": pool()}, {"a": INF, "b": INF}, 64)
    assert {s: p.replicas for s, p in made.items()} == {"a": 48, "b": 16}


def test_replicas_stay_between_their_bounds():
    made = balanced({"a": 6.0, "b": 1.0}, {}, {"a": pool(2), "b": pool(3)}, {"a": 4, "b": INF}, 64)
    assert {s: p.replicas for s, p in made.items()} == {"a": 4, "b": 3}


def test_tenths_of_a_gpu_fill_it():
    assert balanced({"a": 1.0}, {}, {"a": pool(gpus=0.1)}, {"a": INF}, 1)["a"].replicas == 10


def test_shares_above_one_half_need_a_gpu_each():
    pools = {"a": pool(gpus=0.95), "b": pool(gpus=0.05)}
    made = balanced({"a": 1.0}, {}, pools, dict.fromkeys("ab", INF), 64)
    assert (made["a"].replicas, made["b"].replicas) == (64, 1)


def test_too_few_gpus_are_refused():
    pools = {"a": pool(gpus=2), "b": pool(gpus=2)}
    with pytest.raises(UsageError, match="3 GPUs do not hold a 1 x 2, b 1 x 2"):
        balanced({"a": 1.0}, {}, pools, {"a": INF, "b": INF}, 3)


# -- rates and workloads -----------------------------------------------------------------------------------------------

RATES = {
    "about": "of this test",
    "services": {"editor": {"fixed": 1.0, "per_item": 0.5, "gpus": 1, "max_batch": 4}},
    "turns": {"lengths": [3], "weights": [1]},
    "per_turn": {
        "sandbox_seconds": 2.0,
        "calls": {service: {"share": 0.0} for service in ("target", "editor", "backbone")}
        | {"generator": {"share": 1.0, "requests": 5}},
        "tokens": {"prompt": 100, "cached": 40, "generated": 7},
    },
}


def written(folder: Path, values: object) -> str:
    path = folder / "rates.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def test_the_built_in_table_says_what_was_measured():
    assert "measured on one H200 with random weights of Gemma 3 27B" in from_rates().source


def test_investigations_are_drawn_from_the_rates(tmp_path: Path):
    work = from_rates(written(tmp_path, RATES))
    assert {tuple(trace) for trace in work.traces} == {(("backbone", 1), ("", 2.0), ("generator", 5)) * 3}
    assert work.tokens[0].tolist() == [300, 120, 21] and work.source == "of this test"
    assert work.timed["editor"] == pool(fixed=1.0, per_item=0.5, max_batch=4)
    assert work.timed["generator"] == from_rates().timed["generator"], "what a file leaves out is built in"


def test_turns_and_calls_are_as_frequent_as_stated():
    work = from_rates()
    turns = [sum(step == ("backbone", 1) for step in trace) for trace in work.traces]
    edited = [sum(service == "editor" for service, _ in trace) for trace in work.traces]
    assert np.mean(turns) == pytest.approx(7, abs=0.15)
    assert sum(edited) / sum(turns) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"servces": {}}, "servces"),
        ({"services": {"generator": {"fixd": 1}}}, "fixd"),
        ({"services": {"editor": {"fixed": -1}}}, "fixed: -1"),
        ({"turns": {"lengths": [3], "weights": ["many"]}}, "- many"),
        ({"turns": {"lengths": [3], "weights": [1, 2]}}, "same size"),
        ({"per_turn": {"sandbox_seconds": None}}, "sandbox_seconds: null"),
        ({"about": "???"}, "about is missing"),
        ({"services": {"generator": {"max_batch": 0}}}, "max_batch"),
        ({"services": {"generator": {"max_batch": 1.5}}}, "max_batch"),
        ({"per_turn": {"calls": {"generator": {"requests": 0.5}}}}, "requests"),
    ],
)
def test_a_wrong_rates_file_is_refused_by_naming_the_key(tmp_path: Path, changes: dict[str, object], words: str):
    values = {name: value for name, value in (RATES | changes).items() if value != "???"}
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        from_rates(written(tmp_path, values))
    assert "rates.yaml" in refused.value.message


def recorded(tmp_path: Path, *turns: object) -> Run:
    """A run of one unit with these turns."""
    run = Run.create(load(["name=one", "target.name=net", "units=layer4=0", f"paths.runs={tmp_path}/runs"]))
    run.publish(samples.record(turns=turns) if turns else samples.record())
    return run


def test_records_give_traces_and_the_mean_time_of_a_request(tmp_path: Path):
    """A turn of the sample: one reply of 1.25 s, an experiment of 0.5 s with calls of 0.75 s, 2 probes in 0.125 s."""
    work = from_run(recorded(tmp_path))
    assert [list(trace) for trace in work.traces] == [[("backbone", 1), ("target", 2)] * 2]
    assert {role: timed.per_item for role, timed in work.timed.items()} == {"target": 0.0625, "backbone": 1.25}
    assert work.tokens.tolist() == [[200, 20, 40]] and work.seconds


def test_requests_of_tools_to_the_backbone_are_a_call_of_their_own(tmp_path: Path):
    turn = samples.turn(spent={"backbone": ServiceUsage(requests=4, seconds=2.0)}, calls=(), experiment_seconds=1.5)
    assert list(from_run(recorded(tmp_path, turn)).traces[0]) == [("backbone", 1), ("", 1.5), ("backbone", 3)]


def test_records_without_service_times_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no records with service times"):
        from_run(recorded(tmp_path, samples.turn(spent={})))


# -- the prediction ----------------------------------------------------------------------------------------------------


def workload(*traces: Trace, per_item: float = 1.0) -> Workload:
    """per_item: seconds that a request took in the records; 0 without records."""
    services = {service for trace in traces for service, _ in trace if service and per_item}
    seconds = {s: [sum(n for name, n in trace if name == s) * per_item for trace in traces] for s in services}
    tokens = np.tile([10.0, 4.0, 1.0], (len(traces), 1))
    return Workload(traces=traces, tokens=tokens, timed={}, source="of this test", seconds=seconds)


def test_a_prediction_by_hand():
    """100 equal units, 4 requests each of 2 s on 2 replicas of half a GPU; tests: 2 n images and no target."""
    pools = {"generator": pool(2, 4, per_item=2.0, gpus=0.5)}
    prediction = predict(
        workload([("generator", 4)], [("generator", 4)], per_item=2.0), pools, units=100, at_once=50, tested=5
    )
    use = prediction.services["generator"]
    assert prediction.seconds == 100 * 4 * 2 / 2 + 100 * 10 * 2 / 2
    assert prediction.interval == (1400.0, 1400.0)
    assert (prediction.evaluation, use.requests, prediction.bottleneck) == (1000.0, 1400, "generator")
    assert use.hours == pytest.approx(2800 / 3600)
    assert (prediction.gpus, prediction.serial) == (1.0, 100 * (8 + 20))
    assert prediction.tokens == [1000, 400, 100]


def test_many_units_are_extrapolated_from_those_that_were_simulated():
    prediction = predict(workload([("a", 1)]), {"a": pool(3, 1)}, units=300_000, at_once=30, tested=0)
    assert prediction.seconds == pytest.approx(100_000, rel=1e-3)


def test_too_few_investigations_at_once_are_the_bottleneck():
    work = workload([("", 60.0), ("a", 1)])
    assert predict(work, {"a": pool(4)}, units=50, at_once=2, tested=0).bottleneck == ""


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    """Units of 1 or 9 requests. From 30 records, what 300 further units take, against 300 that are drawn afresh."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        seen = workload(*([("a", int(n))] for n in random.choice([1, 9], 30)))
        low, high = predict(seen, {"a": pool(per_item=1.0)}, units=300, at_once=100, tested=0).interval
        held += low <= float(random.choice([1, 9], 300).sum()) <= high
    assert 50 <= held <= 60


def test_stated_rates_and_a_single_record_have_no_interval():
    def is_known(work: Workload) -> bool:
        low, high = predict(work, {"a": pool()}, units=9, at_once=9, tested=0).interval
        return low < high

    assert not is_known(workload([("a", 1)]))
    assert not is_known(workload([("a", 1)], [("a", 7)], per_item=0))
    assert is_known(workload([("a", 1)], [("a", 7)]))


def test_at_once_fills_a_batch_of_each_replica_twice():
    work, pools = workload([("a", 4), ("b", 50)]), {"a": pool(3, 8), "b": pool(2, 16)}
    assert enough_at_once(work, pools, units=1000) == 2 * (3 * 2 + 2)
    assert enough_at_once(work, pools, units=5) == 5


def replicas(prediction: Prediction) -> list[int]:
    return [use.pool.replicas for use in prediction.services.values()]


def test_a_pool_without_gpus_has_those_of_the_table():
    own = ["pools.generator.num_gpus=0.5", "pools.generator.max_batch=4"]
    prediction = estimate(load(["name=x", "target.name=net", "units=a=0", *own]), from_rates(), 50, gpus=8)
    generator, editor = prediction.services["generator"].pool, prediction.services["editor"].pool
    assert (generator.gpus, generator.max_batch, editor.gpus, editor.max_batch) == (0.5, 4, 1, 8)
    assert prediction.gpus <= 8


def test_elastic_pools_grow_as_far_as_the_gpus_of_the_job_reach():
    own = [f"pools.{role}.num_gpus=1" for role in ("generator", "backbone")]
    grown = [*own, "pools.generator.max_replicas=5", "job.gpus=4"]
    for overrides, expected in ((own, [1, 1, 1, 1]), (grown, [1, 3, 1, 1])):
        config = load(["name=x", "target.name=net", "units=a=0", *overrides])
        assert replicas(estimate(config, from_rates(), 50, gpus=None)) == expected


# -- how many units --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a=0-99", 100),
        ("a=0-9,5,7:b=3", 11),
        ("a=random:20:b=0-4", 25),
        ("random:20", 40),
        ("all", None),
        ("a=all", None),
        ("a=random:5:a=1", None),
    ],
)
def test_units_are_counted_without_the_target(spec: str, expected: int | None):
    assert count(spec, ["a", "b"], "net") == expected


# -- the command -----------------------------------------------------------------------------------------------------


MODELS = [f"configs/models/{name}.yaml" for name in ("gemma3-27b", "flux-dev", "kontext-dev")]
MACHINE = "configs/machine/eight-gpus.yaml"


def command(tmp_path: Path, *arguments: str, models: Sequence[str] = (*MODELS, MACHINE)) -> str:
    """What `openmaia run … --estimate` prints; a UsageError as it is raised."""
    own = [*models, "name=x", "target.name=net", "target.layers=[layer4]", f"paths.runs={tmp_path}/runs"]
    done = CliRunner().invoke(app, ["run", *own, *arguments], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return " ".join(done.output.split())


def test_an_estimate_says_what_it_assumed_and_leaves_no_trace(tmp_path: Path):
    said = command(tmp_path, "units=layer4=0-99", "--estimate")
    assert "units: 100 units, from units=layer4=0-99" in said
    assert "service times: measured on one H200 with random weights" in said
    assert "exemplars, loading, failures" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("models", "unknown"),
    [
        ([], "backbone.kind=scripted, generator.kind=collage, editor.kind=collage, target.kind=network without a GPU"),
        ([*MODELS, MACHINE, "configs/models/endpoint.yaml"], "backbone.kind=openai"),
        ([*MODELS, MACHINE, "configs/models/images-api.yaml"], "generator.kind=openai, editor.kind=openai"),
        ([*MODELS, MACHINE, "evaluate.generator.kind=collage"], "evaluate.generator.kind=collage"),
        ([*MODELS, MACHINE, "pools.backbone.num_gpus=0"], "backbone.kind=vllm without a GPU"),
    ],
)
def test_an_estimate_without_measured_times_has_no_duration(tmp_path: Path, models: list[str], unknown: str):
    said = command(tmp_path, "--estimate", "units=layer4=0-99", models=models)
    assert f"no service times are known for {unknown}" in said
    assert "--rates runs/pilot" in said
    assert not re.search(r"\d+(\.\d+)? (s|min|h|d)\b", said)


def test_times_of_a_file_count_as_known(tmp_path: Path):
    path = tmp_path / "rates.yaml"
    path.write_text("about: own\nservices: {backbone: {fixed: 0, per_item: 2}}\n")
    models = [*MODELS, MACHINE, "configs/models/endpoint.yaml"]
    assert "duration" in command(tmp_path, "--estimate", "units=layer4=0-9", "--rates", str(path), models=models)


def test_an_estimate_that_would_have_to_load_the_target_says_so(tmp_path: Path):
    with pytest.raises(UsageError, match="an estimate loads nothing; give --units NUMBER"):
        command(tmp_path, "units=all", "--estimate")
    assert "12" in command(tmp_path, "units=all", "--estimate", "--units", "12")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--estimate", "--gpus", "0"], "--gpus '0'"),
        (["--estimate", "--gpus", "8,many"], "--gpus '8,many'"),
        (["--estimate", "--gpus", "2"], "2 GPUs do not hold"),
        (["--estimate", "--rates", "/nonesuch.yaml"], "/nonesuch.yaml cannot be used"),
        (["--estimate", "--figure", "x.svg"], "at least two"),
        (["--estimate", "pools.generator.min_replicas=0"], "pools.generator.min_replicas=0"),
        (["--gpus", "8"], "is for --estimate"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, arguments: list[str], said: str):
    with pytest.raises(UsageError, match=re.escape(said)):
        command(tmp_path, "units=layer4=0-9", *arguments)


def finished(tmp_path: Path, planned: int, done: int) -> Run:
    """A run of which some units are done, each a little slower than the one before."""
    sources = [
        "name=x",
        "target.name=net",
        "target.layers=[layer4]",
        f"paths.runs={tmp_path}/runs",
        "units=layer4=0-99",
    ]
    run = Run.create(load(sources))
    units = [Unit(target="net", layer="layer4", index=index) for index in range(planned)]
    run.set_plan(units, 1)
    for unit in units[:done]:
        spent = {"backbone": ServiceUsage(requests=1, seconds=1.0 + unit.index)}
        run.publish(samples.record(unit, turns=(samples.turn(spent=spent), samples.turn(1, spent=spent))))
    return run


def test_a_run_with_records_is_estimated_from_them(tmp_path: Path):
    run = finished(tmp_path, planned=40, done=5)
    said = command(tmp_path, "units=layer4=0-99", "--estimate", models=[])
    assert f"35 of 40 investigations are pending in {run.files.root}" in said
    assert f"measured: 5 records of {run.files.root}" in said
    assert "backbone 3 s a request" in said
    assert "4 min" in said and "(2 min to 5 min)" in said, said


def test_another_runs_records_can_be_named(tmp_path: Path):
    run = finished(tmp_path, planned=4, done=4)
    said = command(tmp_path, "name=y", "units=layer4=0-9", "--estimate", "--rates", run.files.root)
    assert f"measured: 4 records of {run.files.root}" in said
    assert "units: 10 units" in said


def test_a_finished_run_leaves_nothing(tmp_path: Path):
    finished(tmp_path, planned=3, done=3)
    assert "nothing is pending: 0 of 3" in command(tmp_path, "units=layer4=0-99", "--estimate", models=[])
