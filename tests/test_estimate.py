"""Predictions: the simulation against closed forms, the balance against all other ones, rates, intervals, the command."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from openmaia.cli import app
from openmaia.config import load
from openmaia.costs import sweep
from openmaia.costs.balance import balanced
from openmaia.costs.estimate import at_once_for, predict
from openmaia.costs.rates import assumed, read
from openmaia.costs.sample import RESAMPLES, Range, Sample
from openmaia.costs.simulation import Pool, Trace, bounds, latency, simulate
from openmaia.costs.workload import Times, Workload, from_rates, from_records, of
from openmaia.errors import UsageError
from openmaia.services import Spent
from openmaia.store.run import Owed, Run
from openmaia.units import Unit, count
from tests import samples
from tests.report.making import Page


def pool(replicas: int = 1, max_batch: int = 1, fixed: float = 0.0, per_item: float = 1.0, gpus: float = 1.0) -> Pool:
    return Pool(replicas=replicas, max_batch=max_batch, fixed=fixed, per_item=per_item, gpus=gpus)


def draws(n: int, seed: int = 0) -> list[Trace]:
    random = np.random.default_rng(seed)

    def trace() -> Trace:
        return [
            step
            for _ in range(int(random.integers(1, 6)))
            for step in (("a", 1), ("", float(random.random())), ("b", int(random.integers(1, 12))))
        ]

    return [trace() for _ in range(n)]


# -- the simulation against closed forms -----------------------------------------------------------------------------


def test_one_service_serves_full_batches():
    """Ten requests, four to a batch of 1 + n/2 seconds: 3 + 3 + 2."""
    found = simulate([[("a", 1)]] * 10, {"a": pool(max_batch=4, fixed=1.0, per_item=0.5)}, at_once=10)
    assert (found.makespan, found.busy, found.batches, found.requests) == (8.0, {"a": 8.0}, {"a": 3}, {"a": 10})


def test_replicas_share_the_batches():
    found = simulate([[("a", 1)]] * 16, {"a": pool(replicas=2, max_batch=4, fixed=1.0, per_item=0.5)}, at_once=16)
    assert found.makespan == 6.0
    assert found.utilisation("a", pool(replicas=2)) == 1.0


def test_one_call_is_split_over_replicas_and_ends_with_its_last_request():
    found = simulate([[("a", 5), ("", 10.0)]], {"a": pool(replicas=2, max_batch=3, fixed=1.0)}, at_once=1)
    assert found.makespan == 4.0 + 10.0


def test_identical_investigations_are_bound_by_the_bottleneck():
    """A flow shop of equal jobs: the first one's time, and the longest stage once more for each of the others."""
    pools = {"a": pool(per_item=2.0), "b": pool(per_item=5.0), "c": pool(per_item=1.0)}
    for units in (1, 2, 7, 50):
        found = simulate([[("a", 1), ("b", 1), ("c", 1)]] * units, pools, at_once=units)
        assert found.makespan == 2 + 5 + 1 + (units - 1) * 5


def test_one_investigation_at_a_time_takes_the_sum_of_all():
    traces = draws(20)
    pools = {"a": pool(max_batch=4, fixed=1.0), "b": pool(max_batch=16, fixed=0.5)}
    assert simulate(traces, pools, 1).makespan == pytest.approx(sum(latency(trace, pools) for trace in traces))


def test_at_once_bounds_what_is_under_way():
    """Without services: eight waits of 3 s, two at a time."""
    assert simulate([[("", 3.0)]] * 8, {}, at_once=2).makespan == 12.0


def test_no_simulation_beats_its_bounds_and_a_wide_one_comes_near():
    for seed in range(30):
        random = np.random.default_rng(seed)
        pools = {
            name: pool(int(random.integers(1, 4)), int(random.integers(1, 9)), random.random(), random.random())
            for name in "ab"
        }
        traces = draws(200, seed)
        for at_once in (1, 3, 40):
            found = simulate(traces, pools, at_once).makespan
            assert found >= max(bounds(traces, pools, at_once).values()) * (1 - 1e-9)
    wide = {"a": pool(2, 8, 1.0, 0.1), "b": pool(2, 8, 1.0, 0.1)}
    traces = draws(3000)
    assert simulate(traces, wide, 200).makespan < 1.05 * max(bounds(traces, wide, 200).values())


def test_every_request_is_served_once():
    traces = draws(100)
    found = simulate(traces, {"a": pool(2, 3, 0.1), "b": pool(3, 5, 0.1)}, 17)
    asked = {s: sum(amount for trace in traces for name, amount in trace if name == s) for s in "ab"}
    assert found.requests == asked


def test_bounds_by_hand():
    """a: 6 requests in batches of 3, two seconds each, on 2 replicas. Alone: a call of 2 takes 1.5 s there, then 4 s."""
    pools = {"a": pool(replicas=2, max_batch=3, fixed=0.5, per_item=0.5)}
    found = bounds([[("a", 2), ("", 4.0)]] * 3, pools, at_once=2)
    assert found["a"] == pytest.approx(6 * (0.5 / 3 + 0.5) / 2)
    assert found[""] == pytest.approx(3 * (0.5 + 0.5 + 4.0) / 2)


def test_calls_and_investigations_without_requests_end_at_once():
    found = simulate([[], [("a", 0), ("a", 1)], [("a", 0)]] * 2000, {"a": pool()}, at_once=1)
    assert (found.makespan, found.requests) == (2000.0, {"a": 2000})


def test_a_trace_that_needs_an_unknown_service_is_refused():
    with pytest.raises(ValueError, match="needs the service 'z'; there are pools of a"):
        simulate([[("z", 1)]], {"a": pool()}, 1)


# -- the balance -----------------------------------------------------------------------------------------------------


def brute(stages: list[Mapping[str, float]], pools: Mapping[str, Pool], gpus: float) -> float:
    best = float("inf")
    most = [range(1, int(gpus / p.gpus) + 1) for p in pools.values()]
    for counts in itertools.product(*most):
        given = dict(zip(pools, counts, strict=True))
        if sum(given[s] * p.gpus for s, p in pools.items()) <= gpus + 1e-9:
            best = min(best, cost(stages, pools, given))
    return best


def cost(stages: list[Mapping[str, float]], pools: Mapping[str, Pool], counts: Mapping[str, int]) -> float:
    return sum(max(stage.get(s, 0.0) * p.per_request / counts[s] for s, p in pools.items()) for stage in stages)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_numbers_of_replicas_are_better(seed: int):
    random = np.random.default_rng(seed)
    pools = {s: pool(per_item=random.uniform(0.1, 3), gpus=random.choice([0.5, 1, 2])) for s in "abc"}
    stages = [{s: random.uniform(0, 20) for s in "abc"}, {"b": random.uniform(0, 20)}]
    gpus = int(random.integers(6, 16))
    made = balanced(stages, pools, gpus)
    counts = {s: p.replicas for s, p in made.items()}
    assert sum(p.replicas * p.gpus for p in made.values()) <= gpus
    assert cost(stages, pools, counts) == pytest.approx(brute(stages, pools, gpus))


def test_replicas_are_in_proportion_to_the_work():
    made = balanced([{"a": 6.0, "b": 2.0}], {"a": pool(), "b": pool()}, 64)
    assert {s: p.replicas for s, p in made.items()} == {"a": 48, "b": 16}


def test_tenths_of_a_gpu_fill_it():
    assert balanced([{"a": 1.0}], {"a": pool(gpus=0.1)}, 1)["a"].replicas == 10


def test_services_without_gpus_keep_their_replicas():
    made = balanced([{"a": 9.0, "b": 1.0}], {"a": pool(replicas=3, gpus=0), "b": pool()}, 4)
    assert made["a"].replicas == 3


def test_too_few_gpus_are_refused():
    with pytest.raises(UsageError, match="3 GPUs do not hold one replica of each service .a 2, b 2."):
        balanced([{"a": 1.0}], {"a": pool(gpus=2), "b": pool(gpus=2)}, 3)


# -- rates and workloads ---------------------------------------------------------------------------------------------


def test_the_built_in_table_says_of_every_figure_that_it_is_assumed():
    rates = assumed()
    assert "assumed, not measured" in rates.about
    for about in [rates.turns.about, rates.per_turn.about]:
        assert "assumed" in about
    for role in ("target", "generator", "editor", "backbone"):
        assert "assumed" in getattr(rates.services, role).about


def table(**changes: object) -> dict[str, object]:
    service = {"fixed": 1.0, "per_item": 0.5, "gpus": 1, "max_batch": 4, "about": "of this test"}
    values: dict[str, object] = {
        "about": "of this test",
        "services": {role: dict(service) for role in ("target", "generator", "editor", "backbone")},
        "turns": {"about": "of this test", "weights": {3: 1}},
        "per_turn": {
            "about": "of this test",
            "sandbox_seconds": 2.0,
            "calls": {"generator": {"share": 1.0, "requests": 5}},
            "tokens": {"prompt": 100, "cached": 40, "generated": 7},
        },
    }
    return values | changes


def written(folder: Path, values: object) -> str:
    path = folder / "rates.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def test_investigations_are_drawn_from_the_rates(tmp_path: Path):
    found = from_rates(read(written(tmp_path, table())))
    assert list(found.traces[0]) == [("backbone", 1), ("", 2.0), ("generator", 5)] * 3
    assert set(map(tuple, found.traces)) == {tuple(found.traces[0])}
    assert found.tokens[0] == (300, 120, 21)
    assert found.times["editor"] == Times(fixed=1.0, per_item=0.5, max_batch=4, gpus=1)


def test_turns_and_calls_are_as_frequent_as_stated():
    found = from_rates(assumed())
    turns = [sum(step == ("backbone", 1) for step in trace) for trace in found.traces]
    edited = [sum(service == "editor" for service, _ in trace) for trace in found.traces]
    assert np.mean(turns) == pytest.approx(7, abs=0.15)
    assert sum(edited) / sum(turns) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"servces": {}}, "servces"),
        ({"services": {"generator": {"fixd": 1}}}, "fixd"),
        ({"turns": {"about": "x", "weights": {}}}, "turns.weights"),
        ({"turns": {"about": "x", "weights": {0: 1}}}, "turns.weights"),
        ({"turns": {"about": "x", "weights": {3: "many"}}}, "many"),
        ({"turns": {"weights": {3: 1}}}, "leaves out turns.about"),
        ({"services": {"target": {"fixed": -1}}}, "leaves out"),
        ({"per_turn": {"about": "x", "sandbox_seconds": -1}}, "per_turn.sandbox_seconds"),
        ({"per_turn": {"about": "x", "sandbox_seconds": 1, "calls": {"editor": {"share": 2}}}}, "calls.editor"),
    ],
)
def test_a_bad_rates_file_is_refused_by_naming_the_key(tmp_path: Path, changes: dict[str, object], said: str):
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        read(written(tmp_path, table(**changes)))
    assert "rates.yaml" in refused.value.message


def test_a_service_that_takes_no_time_or_has_no_batch_is_refused(tmp_path: Path):
    for key, value in (("max_batch", 0), ("fixed", -1.0)):
        values = table()
        values["services"]["editor"][key] = value  # pyright: ignore
        with pytest.raises(UsageError, match="services.editor"):
            read(written(tmp_path, values))


def test_records_give_traces_and_the_mean_time_of_a_request():
    """A turn of the sample: one reply of 1.25 s, an experiment of 0.5 s with calls of 0.75 s in it, 2 probes in 0.125 s."""
    found = of([samples.record(), samples.record()], "measured here")
    assert [list(trace) for trace in found.traces] == [[("backbone", 1), ("target", 2)] * 2] * 2
    assert found.times == {
        "target": Times(fixed=0.0, per_item=0.0625),
        "backbone": Times(fixed=0.0, per_item=1.25),
    }
    assert found.tokens == ((200, 20, 40),) * 2
    assert found.seconds == {"target": [0.25, 0.25], "backbone": [2.5, 2.5]}


def test_what_tools_ask_the_backbone_is_a_call_of_its_own():
    turn = samples.turn(spent={"backbone": Spent(requests=4, seconds=2.0)}, calls=(), experiment_seconds=1.5)
    found = of([samples.record(turns=(turn,))], "")
    assert list(found.traces[0]) == [("backbone", 1), ("", 1.5), ("backbone", 3)]


def test_records_without_service_times_are_refused():
    with pytest.raises(UsageError, match="hold no service times"):
        of([samples.record(turns=(samples.turn(spent={}),))], "runs/x")


# -- the prediction --------------------------------------------------------------------------------------------------


def workload(*traces: Trace, per_item: float | None = 1.0) -> Workload:
    """per_item: seconds that a request took in the records; None where there are none."""
    services = {service for trace in traces for service, _ in trace if service}
    taken = {s: [sum(n for name, n in trace if name == s) * (per_item or 0) for trace in traces] for s in services}
    return Workload(
        traces=traces,
        tokens=((10, 4, 1),) * len(traces),
        times={},
        source="of this test",
        seconds=None if per_item is None else taken,
    )


def test_a_prediction_by_hand():
    """100 equal units, 4 requests each of 2 s on 2 replicas of half a GPU; tests: 2 n pictures and no target."""
    found = predict(
        workload([("generator", 4)], per_item=2.0),
        {"generator": pool(2, 4, per_item=2.0, gpus=0.5)},
        units=100,
        at_once=50,
        tested=5,
    )
    assert found.duration == Range(value=1000 / 2 * 2 + 400, low=1400, high=1400)
    assert found.evaluation == 1000.0
    assert found.services["generator"].requests == 1400
    assert found.services["generator"].hours.value == pytest.approx(2800 / 3600)
    assert found.gpu_hours == pytest.approx(1400 / 3600)
    assert found.reserved == pytest.approx(1400 / 3600)
    assert found.services["generator"].utilisation == 1.0
    assert found.bottleneck == "generator"
    assert found.serial == 100 * (8 + 20)
    assert [tokens.value for tokens in found.tokens] == [1000, 400, 100]


def test_many_units_are_extrapolated_from_those_that_were_simulated():
    found = predict(workload([("a", 1)]), {"a": pool(3, 1)}, units=300_000, at_once=30, tested=0)
    assert found.duration.value == pytest.approx(100_000, rel=1e-3)


def test_too_few_at_once_is_the_bottleneck():
    assert predict(workload([("", 60.0), ("a", 1)]), {"a": pool(4)}, units=50, at_once=2, tested=0).bottleneck == ""


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    """Units of 1 or 9 requests. From 30 records, what 300 further units take, against 300 that are drawn afresh."""
    random = np.random.default_rng(1)
    pools = {"a": pool(per_item=1.0)}
    held = 0
    for _ in range(60):
        seen = workload(*([("a", int(n))] for n in random.choice([1, 9], 30)))
        duration = predict(seen, pools, units=300, at_once=100, tested=0).duration
        truth = float(random.choice([1, 9], 300).sum())
        held += duration.low <= truth <= duration.high
    assert 50 <= held <= 60


def test_stated_rates_and_a_single_record_have_no_interval():
    pools = {"a": pool()}
    assert not predict(workload([("a", 1)]), pools, units=9, at_once=9, tested=0).duration.is_known
    stated = workload([("a", 1)], [("a", 7)], per_item=None)
    assert not predict(stated, pools, units=9, at_once=9, tested=0).duration.is_known
    assert predict(workload([("a", 1)], [("a", 7)]), pools, units=9, at_once=9, tested=0).duration.is_known


def test_draws_are_of_the_number_of_units_that_was_asked():
    sample = Sample.of(workload([("a", 1)], [("a", 7)]), {"a": pool()}, 4)
    found = sample.draws(123, np.random.default_rng(0))
    assert len(found) == RESAMPLES
    assert {float(draw.sum()) for draw in found} == {123.0}
    assert sample.bound(np.array([2.0, 0.0])) == 2.0


def test_at_once_fills_a_batch_of_each_replica_twice():
    found = workload([("a", 4), ("b", 50)])
    assert at_once_for(found, {"a": pool(3, 8), "b": pool(2, 16)}, units=1000) == 2 * (3 * 2 + 2)
    assert at_once_for(found, {"a": pool(3, 8), "b": pool(2, 16)}, units=5) == 5


@pytest.mark.parametrize(("units", "at_once"), [(0, 1), (1, 0)])
def test_nothing_to_predict_is_refused(units: int, at_once: int):
    with pytest.raises(UsageError, match="1 or more"):
        predict(workload([("a", 1)]), {"a": pool()}, units=units, at_once=at_once, tested=0)


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
    assert count(spec, ["a", "b"]) == expected


# -- the command -----------------------------------------------------------------------------------------------------


def command(tmp_path: Path, *arguments: str) -> str:
    """What `openmaia run … --estimate` prints; a UsageError as it is raised."""
    own = ["name=x", "target.name=net", "target.layers=[layer4]", f"paths.runs={tmp_path}/runs"]
    done = CliRunner().invoke(app, ["run", *own, *arguments], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return " ".join(done.output.split())


def test_an_estimate_says_what_it_assumed_and_leaves_no_trace(tmp_path: Path):
    said = command(tmp_path, "units=layer4=0-99", "--estimate")
    assert "units: 100 units, from units=layer4=0-99" in said
    assert "service times: assumed, not measured" in said
    assert "exemplars, loading, failures" in said
    assert list(tmp_path.iterdir()) == []


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
        (["--estimate", "--rates", "/nonesuch.yaml"], "/nonesuch.yaml cannot be read"),
        (["--estimate", "--figure", "x.svg"], "at least two"),
        (["--estimate", "pools.generator.replicas=0"], "pools.generator.replicas=0"),
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
        spent = {"backbone": Spent(requests=1, seconds=1.0 + unit.index)}
        run.publish(samples.record(unit, turns=(samples.turn(spent=spent), samples.turn(1, spent=spent))))
    return run


def test_a_run_with_records_is_estimated_from_them(tmp_path: Path):
    run = finished(tmp_path, planned=40, done=5)
    said = command(tmp_path, "units=layer4=0-99", "--estimate")
    assert f"35 of 40 investigations are owed by {run.files.root}" in said
    assert f"measured: 5 records of {run.files.root}" in said
    assert "backbone 3 s a request" in said
    assert "4 min (2 min to 5 min)" in said, said


def test_another_runs_records_can_be_named(tmp_path: Path):
    run = finished(tmp_path, planned=4, done=4)
    said = command(tmp_path, "name=y", "units=layer4=0-9", "--estimate", "--rates", run.files.root)
    assert f"measured: 4 records of {run.files.root}" in said
    assert "units: 10 units" in said


def test_a_finished_run_owes_nothing(tmp_path: Path):
    finished(tmp_path, planned=3, done=3)
    assert "nothing is owed: 0 of 3" in command(tmp_path, "units=layer4=0-99", "--estimate")


def test_a_run_without_records_has_no_rates(tmp_path: Path):
    run = finished(tmp_path, planned=3, done=0)
    with pytest.raises(UsageError, match="has no records to take service times from"):
        from_records(run)
    with pytest.raises(UsageError, match="has no record"):
        run.record(Owed(unit=samples.UNIT, replicate=0))


def test_a_pool_without_gpus_in_the_config_has_those_of_the_table():
    config = load(
        ["name=x", "target.name=net", "units=a=0", "pools.generator.num_gpus=0.5", "pools.generator.max_batch=4"]
    )
    made = sweep.on_gpus(config, from_rates(assumed()), 8)
    assert (made["generator"].gpus, made["generator"].max_batch) == (0.5, 4)
    assert (made["editor"].gpus, made["editor"].max_batch) == (1, 8)
    assert sum(p.replicas * p.gpus for p in made.values()) <= 8


def test_the_figure_names_its_source_and_escapes_it(tmp_path: Path):
    from openmaia.figures.scaling import scaling

    two = [predict(workload([("a", 1)]), {"a": pool(replicas)}, units=50, at_once=50, tested=0) for replicas in (1, 8)]
    drawn = scaling(two, "<script>x</script> & more").decode()
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn
    page = Page(drawn)
    assert len(page.all("circle")) == 2
    assert "50 units" in page.text
    assert {"1 GPUs", "8 GPUs"} <= {text.strip() for text in page.text.splitlines()}
    with pytest.raises(ValueError, match="two numbers of GPUs"):
        scaling([dataclasses.replace(two[0])], "x")
