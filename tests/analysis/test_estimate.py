"""Estimates: bounds by hand, the balance against all others, rates, records, the command."""

import itertools
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from openmaia.analysis.costs.beside import list_uncounted
from openmaia.analysis.costs.estimate import Estimate, balance, choose_at_once, estimate
from openmaia.analysis.costs.needs import find_needs
from openmaia.analysis.costs.rates import image_kb
from openmaia.analysis.costs.workload import Asked, TimedPool, Workload, count_pending, from_rates, from_run
from openmaia.cli.main import app
from openmaia.config.loading import load
from openmaia.config.machine import POOLS
from openmaia.config.schema import Config
from openmaia.config.sections import site
from openmaia.core.components import ALIASES, ROLES, component, config_class, target_class
from openmaia.core.errors import UsageError
from openmaia.core.selection import count
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.runs.run import Run
from tests.helpers import samples

INF = float("inf")


def pool(
    replicas: int = 1, max_batch: int = 1, fixed: float = 0.0, per_item: float = 1.0, gpus: float = 1.0
) -> TimedPool:
    return TimedPool(replicas=replicas, max_batch=max_batch, fixed=fixed, per_item=per_item, gpus=gpus)


# -- the balance -------------------------------------------------------------------------------------------------------


def longest(work: Mapping[str, float], counts: Mapping[str, int]) -> float:
    return max(seconds / counts[service] for service, seconds in work.items())


@pytest.mark.parametrize("seed", range(12))
def test_no_other_numbers_of_replicas_are_better(seed: int):
    random = np.random.default_rng(seed)
    pools = {s: pool(gpus=random.choice([0.5, 1, 2])) for s in "abc"}
    work = {s: random.uniform(0, 20) for s in "abc"}
    gpus = int(random.integers(6, 16))
    made = balance(work, pools, dict.fromkeys("abc", INF), gpus)
    assert sum(p.replicas * p.gpus for p in made.values()) <= gpus
    ranges = [range(1, int(gpus / p.gpus) + 1) for p in pools.values()]
    others = [dict(zip("abc", counts, strict=True)) for counts in itertools.product(*ranges)]
    fitting = [counts for counts in others if sum(counts[s] * p.gpus for s, p in pools.items()) <= gpus]
    best = min(longest(work, counts) for counts in fitting)
    assert longest(work, {s: p.replicas for s, p in made.items()}) == pytest.approx(best)


def test_replicas_are_in_proportion_to_the_work():
    made = balance({"a": 6.0, "b": 2.0}, {"a": pool(), "b": pool()}, {"a": INF, "b": INF}, 64)
    assert {s: p.replicas for s, p in made.items()} == {"a": 48, "b": 16}


def test_replicas_stay_between_their_bounds():
    made = balance({"a": 6.0, "b": 1.0}, {"a": pool(2), "b": pool(3)}, {"a": 4, "b": INF}, 64)
    assert {s: p.replicas for s, p in made.items()} == {"a": 4, "b": 3}


def test_tenths_of_a_gpu_fill_it():
    assert balance({"a": 1.0}, {"a": pool(gpus=0.1)}, {"a": INF}, 1)["a"].replicas == 10


def test_shares_above_one_half_need_a_gpu_each():
    pools = {"a": pool(gpus=0.95), "b": pool(gpus=0.05)}
    made = balance({"a": 1.0, "b": 0.0}, pools, dict.fromkeys("ab", INF), 64)
    assert (made["a"].replicas, made["b"].replicas) == (64, 1)


def test_too_few_gpus_are_refused():
    pools = {"a": pool(gpus=2), "b": pool(gpus=2)}
    with pytest.raises(UsageError, match="3 GPUs do not hold a 1 x 2, b 1 x 2"):
        balance({"a": 1.0}, pools, {"a": INF, "b": INF}, 3)


# -- rates and workloads -----------------------------------------------------------------------------------------------

RATES = {
    "about": "of this test",
    "services": {"editor": {"fixed": 1.0, "per_item": 0.5, "gpus": 1, "max_batch": 4}},
    "turns": 3,
    "per_turn": {
        "sandbox_seconds": 2.0,
        "calls": {service: {"share": 0.0} for service in ("target", "editor", "backbone")}
        | {"generator": {"share": 1.0, "requests": 5}},
        "tokens": {"prompt": 100, "cached": 40, "generated": 7},
    },
}
MODELS = ["gemma3-27b", "flux-dev", "kontext-dev"]
MACHINE = "eight-gpus"
RESNET = ["name=x", "target.name=net", "target.network=resnet152", "target.layers=[layer4]", "units=layer4=0"]


def written(folder: Path, values: object) -> str:
    path = folder / "rates.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def rated(*overrides: str, path: str = "", card: str = "", is_on_gpus: bool = False) -> Workload:
    """The workload of the models that were measured, or of others."""
    return from_rates(load([*MODELS, MACHINE, *RESNET, *overrides]), path, card, is_on_gpus=is_on_gpus)


def test_the_built_in_rates_say_where_and_when_they_were_measured():
    work = rated()
    assert set(work.timed) == {"target", "generator", "editor", "backbone"} and not work.unrated
    assert set(work.sources.values()) == {"measured on one NVIDIA H200, 2026-11-27"}
    assert work.timed["generator"] == pool(fixed=1.75, per_item=1.0, max_batch=8)


@pytest.mark.parametrize(
    ("overrides", "card", "role", "words"),
    [
        (["flux2-klein"], "", "generator", "FLUX.2-klein-4B as generator on any card"),
        (["flux2-klein"], "", "editor", "FLUX.2-klein-4B as editor on any card"),
        (["flux2-klein"], "h100", "generator", "FLUX.2-klein-4B as generator on H100"),
        ([], "h100", "backbone", "gemma-3-27b-it (vllm) as backbone on H100 (measured: on NVIDIA H200)"),
        (
            ["generator.steps=4"],
            "",
            "generator",
            "FLUX.1-dev as generator on any card (measured: steps=25 on NVIDIA H200)",
        ),
        (["generator.size=1024"], "", "generator", "(measured: size=512 on NVIDIA H200)"),
        (
            ["backbone.model=Qwen/Qwen3-VL-4B-Instruct"],
            "",
            "backbone",
            "Qwen3-VL-4B-Instruct (vllm) as backbone on any card",
        ),
        (["target.network=resnet50"], "", "target", "resnet50 as target on any card"),
        (["endpoint"], "", "backbone", ", which is on a server"),
        (["pools.backbone.num_gpus=0"], "", "backbone", "without a GPU (pools.backbone.num_gpus=0)"),
        (["evaluate.generator.kind=collage"], "", "test_generator", "collage as test generator without a GPU"),
    ],
)
def test_a_model_never_has_the_rate_of_another(overrides: list[str], card: str, role: str, words: str):
    work = rated(*overrides, card=card)
    assert role not in work.timed
    assert work.unrated[role].startswith("no rate measured for ") and words in work.unrated[role]


def test_a_card_is_found_by_part_of_its_name():
    assert rated(card="h200").timed == rated().timed


def test_another_generator_of_test_images_has_a_pool_of_its_own():
    """A test of 2 x 60 images and what tests draw once, by the second pool."""
    own = [
        f"evaluate.generator.{key}" for key in ("kind=diffusers", "model=black-forest-labs/FLUX.1-dev", "quantize=nf4")
    ]
    own += ["evaluate.generator.steps=25", "evaluate.generator.size=512", "pools.test_generator.num_gpus=1"]
    found = estimate(load([*MODELS, MACHINE, *RESNET, *own]), rated(*own), 10, None)
    one = estimate(load([*MODELS, MACHINE, *RESNET]), rated(), 10, None)
    # Once: 60 random words with 2 x 10 images, and 60 unrelated images.
    assert found.services["test_generator"].requests == pytest.approx(10 * 120 + 1260)
    assert one.services["generator"].requests - found.services["generator"].requests == pytest.approx(10 * 120 + 1260)


def test_images_of_another_size_have_no_rate_of_the_editor():
    work = rated("generator.size=1024")
    assert (
        "FLUX.1-Kontext-dev as editor on any card (measured: generator.size=512 on NVIDIA H200)"
        in work.unrated["editor"]
    )


def test_an_investigation_asks_for_what_the_rates_say(tmp_path: Path):
    work = rated(path=written(tmp_path, RATES))
    nothing = Asked(0, 0)
    assert work.asked == {"backbone": (3, 3), "generator": (3, 15), "editor": nothing, "target": nothing}
    assert work.tokens.tolist() == [300, 120, 21] and (work.experiments, work.source) == (6.0, "of this test")
    assert work.timed["editor"] == pool(fixed=1.0, per_item=0.5, max_batch=4)
    assert work.sources["editor"] == f"given in {tmp_path}/rates.yaml"
    assert work.timed["generator"] == rated().timed["generator"], "what a file leaves out is built in"


def test_rounds_cost_a_reply_and_the_images_of_a_test(tmp_path: Path):
    rates = written(tmp_path, RATES)
    work, plain = rated("task.evidence.confirm=4", "task.evidence.rounds=2", path=rates), rated(path=rates)
    assert work.asked["backbone"] == (5, 5) and work.asked["target"] == (2, 16)
    assert work.asked["generator"] == (3 + 2, 15 + 16) and work.asked["editor"] == plain.asked["editor"]
    assert work.tokens.tolist() == [500, 200, 35] and "all of 2 rounds" in work.source


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"servces": {}}, "servces"),
        ({"services": {"generator": {"fixd": 1}}}, "fixd"),
        ({"services": {"editor": {"fixed": -1}}}, "fixed: -1"),
        ({"turns": "many"}, "turns"),
        ({"per_turn": {"sandbox_seconds": None}}, "sandbox_seconds: null"),
        ({"about": "???"}, "about is missing"),
        ({"services": {"generator": {"max_batch": 0}}}, "max_batch"),
        ({"services": {"generator": {"max_batch": 1.5}}}, "max_batch"),
    ],
)
def test_a_wrong_rates_file_is_refused_by_naming_the_key(tmp_path: Path, changes: dict[str, object], words: str):
    values = {name: value for name, value in (RATES | changes).items() if value != "???"}
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        rated(path=written(tmp_path, values))
    assert "rates.yaml" in refused.value.message


def test_a_rates_file_without_times_makes_no_model_free(tmp_path: Path):
    path = written(tmp_path, {"about": "mine", "services": {"generator": {"max_batch": 4}}})
    assert rated(path=path).timed["generator"].fixed == 1.75, "the times that are built in"
    with pytest.raises(UsageError, match="services.generator: fixed and per_item are missing"):
        rated("flux2-klein", path=path)


def test_the_demo_with_other_tests_or_a_bank_was_not_measured():
    for other in ("evaluate.n=600", "bank.images=500"):
        config = load(["configs/demo.yaml", other])
        assert estimate(config, from_rates(config), 32, None).cpu_seconds == 0


def recorded(tmp_path: Path, *turns: object) -> Run:
    """A run of one unit with these turns."""
    run = Run.create(load(["name=one", "target.name=net", "units=layer4=0", f"paths.runs={tmp_path}/runs"]))
    run.publish(samples.record(turns=turns) if turns else samples.record())
    return run


def test_records_give_calls_and_the_mean_time_of_a_request(tmp_path: Path):
    """Two turns of the sample: one reply of 1.25 s, an experiment of 0.5 s with calls of 0.75 s, 2 probes in 0.125 s."""
    work = from_run(recorded(tmp_path))
    assert work.asked == {"target": (2, 4), "backbone": (2, 2)} and work.experiments == 0
    assert {role: timed.per_item for role, timed in work.timed.items()} == {"target": 0.0625, "backbone": 1.25}
    assert work.tokens.tolist() == [200, 20, 40]


def test_requests_of_tools_to_the_backbone_are_a_call_of_their_own(tmp_path: Path):
    turn = samples.turn(spent={"backbone": ServiceUsage(requests=4, seconds=2.0)}, calls=(), experiment_seconds=1.5)
    work = from_run(recorded(tmp_path, turn))
    assert work.asked == {"backbone": (2, 4)} and work.experiments == 1.5


def test_records_without_service_times_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no records with service times"):
        from_run(recorded(tmp_path, samples.turn(spent={})))


# -- the bound ---------------------------------------------------------------------------------------------------------


def generating(calls: float, requests: float, *, experiments: float = 0.0, timed: TimedPool | None = None) -> Workload:
    return Workload(
        asked={"generator": Asked(calls, requests)},
        experiments=experiments,
        tokens=np.array([10.0, 4.0, 1.0]),
        timed={"generator": timed or pool(fixed=4.0, per_item=1.0)},
        source="of this test",
    )


def bound(work: Workload, *overrides: str, units: int = 100, gpus: int | None = None) -> Estimate:
    """With tests of 2 x 5 images and no random words, on 2 replicas of half a GPU with batches of 4."""
    overrides = ("evaluate.random_words=0", *overrides)
    own = ["pools.generator.min_replicas=2", "pools.generator.max_batch=4", "pools.generator.num_gpus=0.5"]
    config = load(["name=x", "target.name=net", "units=a=0", "evaluate.n=5", "evaluate.looks=[]", *own, *overrides])
    return estimate(config, work, units, gpus)


def test_a_bound_by_hand():
    """100 investigations with 6 requests in 2 calls, 10 more to test each, and 5 unrelated images once; 2 s a request in a full
    batch, 2 replicas."""
    found = bound(generating(2, 6, experiments=1.0), "ray.investigations=50")
    work = found.services["generator"]
    assert (work.requests, work.seconds, work.replica_seconds) == pytest.approx((1605, 1605, 3210))
    assert (found.bottleneck, found.gpus, found.tokens) == ("generator", 1, [1000, 400, 100])
    assert found.alone == 1 + 2 * (4 + 3) and found.agents_seconds == 15 * 100 / 50


def test_too_few_investigations_at_once_are_the_bottleneck():
    found = bound(generating(1, 1, experiments=60.0), "ray.investigations=2")
    assert (found.bottleneck, found.seconds) == ("ray.investigations", (60 + 5) * 100 / 2)


def test_a_call_alone_is_spread_over_the_replicas():
    """20 requests in batches of 4 on 2 replicas: three batches and 10 requests on one of them."""
    assert bound(generating(1, 20)).alone == 3 * 4 + 10


def test_at_once_fills_a_batch_of_each_replica_twice():
    pools = {"a": pool(3, 8), "b": pool(2, 16)}
    work = Workload(
        asked={"a": Asked(2, 8), "b": Asked(1, 50)},
        experiments=0.0,
        tokens=np.zeros(3),
        timed=pools,
        source="of this test",
    )
    assert choose_at_once(work, pools, units=1000) == 2 * (3 * 2 + 2)
    assert choose_at_once(work, pools, units=5) == 5


def replicas(found: Estimate) -> list[int]:
    return [work.pool.replicas for work in found.services.values()]


def test_a_pool_without_gpus_has_those_of_the_table():
    own = ["pools.generator.num_gpus=0.5", "pools.generator.max_batch=4"]
    sources = [*MODELS, *RESNET, *own]
    prediction = estimate(load(sources), from_rates(load(sources), is_on_gpus=True), 50, gpus=8)
    generator, editor = prediction.services["generator"].pool, prediction.services["editor"].pool
    assert (generator.gpus, generator.max_batch, editor.gpus, editor.max_batch) == (0.5, 4, 1, 8)
    assert prediction.gpus <= 8


def test_elastic_pools_grow_as_far_as_the_gpus_of_the_job_reach():
    own = [f"pools.{role}.num_gpus=1" for role in ("generator", "backbone")]
    grown = [*own, "pools.generator.max_replicas=5", "job.gpus=4"]
    for overrides, expected in ((own, [1, 1, 1, 1]), (grown, [1, 3, 1, 1])):
        config = load([*RESNET, *overrides])
        assert replicas(estimate(config, rated(), 50, gpus=None)) == expected


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
    assert count(spec, {"a": None, "b": None}, "net") == expected


@pytest.mark.parametrize(
    ("spec", "expected"), [("all", 12), ("a=all", 7), ("a=all:b=0-1,4", 10), ("a=random:5:a=1", None)]
)
def test_units_of_layers_of_known_size_are_counted(spec: str, expected: int | None):
    assert count(spec, {"a": 7, "b": 5}, "net") == expected


@pytest.mark.parametrize("spec", ["a=random:8", "random:6"])
def test_more_units_than_a_layer_has_are_refused_as_by_a_run(spec: str):
    with pytest.raises(UsageError, match=r"random:\d of layer '[ab]', which has only \d units"):
        count(spec, {"a": 7, "b": 5}, "net")


def test_a_layer_that_does_not_exist_is_named():
    with pytest.raises(UsageError, match="unknown layer 'c'"):
        count("c=all", {"a": 7, "b": 5}, "net")


# -- the command -----------------------------------------------------------------------------------------------------


def command(tmp_path: Path, *arguments: str, models: Sequence[str] = (*MODELS, MACHINE)) -> str:
    """What `openmaia run … --estimate` prints; a UsageError as it is raised."""
    own = [*models, *RESNET, f"paths.runs={tmp_path}/runs"]
    done = CliRunner().invoke(app, ["run", *own, *arguments], env={"COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return " ".join(done.output.split())


def test_an_estimate_says_what_it_assumed_and_leaves_no_trace(tmp_path: Path):
    said = command(tmp_path, "units=layer4=0-99", "--estimate")
    assert "units: 100 units, from units=layer4=0-99" in said
    assert "generator 1.75 s a batch + 1 s a request (measured on one NVIDIA H200, 2026-11-27)" in said
    assert "memory of a replica: target 1.6 GiB, generator 11.7 GiB, editor not measured, backbone 51 GiB" in said
    assert "weights on disk: target 0.24 GB, generator 33 GB, editor 33 GB, backbone 55 GB" in said
    assert "lossless images of 238 KB: photographs of 512 pixels, measured 2026-11-29" in said
    assert "not counted are queues, loading of models, failures, exemplars (pictures: packages), test prompts" in said
    assert "exemplars of all units of the layers: not measured" in said
    assert "generator" in said and "the agents:" in said
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_without_measured_times_has_no_duration(tmp_path: Path):
    said = command(
        tmp_path, "--estimate", "--card", "h100", "units=layer4=0-99", models=[*MODELS, "flux2-klein", MACHINE]
    )
    assert "no rate measured for black-forest-labs/FLUX.2-klein-4B as generator on H100" in said
    assert "no duration" in said and "--rates runs/pilot" in said
    assert "weights on disk: target 0.24 GB, generator not measured, backbone 55 GB" in said, "the editor loads nothing"
    assert not re.search(r"\d+(\.\d+)? (s|min|h|d)\b", said)


@pytest.mark.parametrize(("cores", "seconds"), [(1, 419.2), (2, 209.6)])
def test_the_demo_takes_its_cpu_time_on_its_cores(cores: int, seconds: float):
    """48 CPU seconds and 11.6 for each of 32 investigations. On two cores the demo took 239 s."""
    config = load(["configs/demo.yaml", f"ray.num_cpus={cores}"])
    found = estimate(config, from_rates(config), 32, None)
    assert (found.bottleneck, found.seconds) == ("cores", pytest.approx(seconds))


@pytest.mark.parametrize(
    ("side", "kilobytes", "words"),
    [(512, 237.9, "photographs of 512 pixels, m"), (256, 62.7 * (256 / 224) ** 2, "of 224 pixels, scaled to 256, m")],
)
def test_an_image_has_the_size_of_the_nearest_that_was_measured(side: int, kilobytes: float, words: str):
    found, said = image_kb(load([*MODELS, *RESNET, f"generator.size={side}"]))
    assert found == pytest.approx(kilobytes) and words in said


# -- what costs is counted or said -------------------------------------------------------------------------------------


@cache
def told(*overrides: str) -> tuple[object, ...]:
    """All that an estimate of ten units says."""
    config = load([*MODELS, MACHINE, *RESNET, *overrides])
    work = from_rates(config)
    return (
        None if work.unrated else estimate(config, work, 10, None),
        work.unrated,
        find_needs(config, work, 10),
        list_uncounted(config, work),
    )


@pytest.mark.parametrize(
    "costly",
    [
        ["bank.images=500"],
        ["bank.images=500", "bank.folder=/photographs"],
        ["shared.images=20"],
        ["evaluate.n=15"],
        ["evaluate.looks=[]"],
        ["evaluate.random_words=5"],
        ["evaluate.pictures=900"],
        ["evaluate.detect=0"],
        ["task.evidence.rounds=2", "task.evidence.confirm=4"],
        ["ray.investigations=9"],
        ["sandbox.memory_mb=4096"],
        ["tools=[mine:tool]"],
        ["generator.size=1024"],
        ["generator.steps=4"],
        ["pools.generator.cache_mb=1024"],
        ["pools.editor.spill_mb=0"],
        ["pools.target.num_gpus=0"],
        ["pools.target.max_batch=2"],
    ],
    ids=lambda costly: costly[0],
)
def test_an_option_that_costs_changes_what_an_estimate_says(costly: list[str]):
    assert told(*costly) != told()


@cache
def measured() -> Config:
    return load([*MODELS, MACHINE, *RESNET])


NAMED_BY = {"pictures": "pictures: ", "viewer": "(viewer)", "writer": "(evaluate.writer)", "judge": "(evaluate.judge)"}
"""What the words for that which is not counted have of a component that has no pool."""
SECTIONS = {"writer": "evaluate.writer", "judge": "evaluate.judge"}
FREE = {("viewer", "none"), ("judge", "none"), ("editor", "generator")}
"""Components that do nothing, or whose work is counted for another one."""


@pytest.mark.parametrize(
    ("role", "kind"), [(role, kind) for role, kinds in ALIASES.items() for kind in kinds if (role, kind) not in FREE]
)
def test_each_component_is_counted_or_said_to_be_unknown(role: str, kind: str):
    config = deepcopy(measured())
    section = SECTIONS.get(role, role)
    made = (config_class(component(role, kind, section), role) or ROLES[role])(kind=kind)
    if role in SECTIONS:
        setattr(config.evaluate, role, made)
    else:
        setattr(config, role, made)
    config.backbone.sees = "text" if role == "viewer" else config.backbone.sees
    work = from_rates(config)
    words = " ".join(list_uncounted(config, work))
    assert estimate(config, work, 10, None).units == 10 and find_needs(config, work, 10).disk > 0
    if role in POOLS:
        assert (role in work.timed) != (role in work.unrated)
    else:
        assert NAMED_BY[role] in words


def test_the_images_of_a_bank_and_of_a_pool_of_images_are_on_the_disk():
    config = load([*MODELS, MACHINE, *RESNET, "bank.images=1000", "shared.images=4"])
    work = from_rates(config)
    found = find_needs(config, work, 100)
    plain = find_needs(load([*MODELS, MACHINE, *RESNET]), work, 100)
    assert found.bank == pytest.approx(1000 * 237.9e-6) and plain.bank == 0
    assert found.disk - plain.disk == pytest.approx(100 * 4 * 237.9e-6)
    assert find_needs(load([*MODELS, MACHINE, *RESNET, "bank.images=9", "bank.folder=/x"]), work, 100).bank is None


def test_shared_images_are_measured_once_more():
    config, shared = (load([*MODELS, MACHINE, *RESNET, f"shared.images={most}"]) for most in (0, 20))
    plain, more = (estimate(each, rated(), 10, None).services["target"].requests for each in (config, shared))
    assert more - plain == pytest.approx(10 * 20)


def test_larger_scenes_have_no_rate():
    assert (
        "scenes as generator without a GPU"
        in from_rates(load(["configs/demo.yaml", "generator.size=224"])).unrated["generator"]
    )


def test_times_of_a_file_count_as_known(tmp_path: Path):
    path = tmp_path / "rates.yaml"
    path.write_text("about: own\nservices: {backbone: {fixed: 0, per_item: 2}}\n")
    models = [*MODELS, MACHINE, "endpoint"]
    said = command(tmp_path, "--estimate", "units=layer4=0-9", "--rates", str(path), models=models)
    assert "at least" in said and "no duration" not in said


def test_all_units_of_a_layer_are_counted_by_its_outline(tmp_path: Path):
    config = load(["closed-form", f"paths.runs={tmp_path}", "units=mono=all:or=0"])
    outline = target_class(config.target).outline(config.target, site(config, "target"))
    assert outline is not None
    number = outline.layers["mono"] + 1
    assert count_pending(config) == (number, f"{number} units, from units=mono=all:or=0")


def test_a_layer_has_no_more_random_units_than_it_has(tmp_path: Path):
    with pytest.raises(UsageError, match="random:999 of layer 'mono', which has only"):
        count_pending(load(["closed-form", f"paths.runs={tmp_path}", "units=mono=random:999"]))


def test_an_estimate_that_would_have_to_load_the_target_says_so(tmp_path: Path):
    hub = "target.network=hf:nobody/nothing"
    with pytest.raises(UsageError, match="an estimate loads nothing; give --units NUMBER"):
        command(tmp_path, "units=all", "--estimate", hub)
    assert "units: as given by --units" in command(tmp_path, "units=all", "--estimate", "--units", "12", hub)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--estimate", "--gpus", "0"], "--gpus '0'"),
        (["--estimate", "--gpus", "8,many"], "--gpus '8,many'"),
        (["--estimate", "--gpus", "2"], "2 GPUs do not hold"),
        (["--estimate", "--rates", "/nonesuch.yaml"], "/nonesuch.yaml cannot be used"),
        (["--estimate", "pools.generator.min_replicas=0"], "pools.generator.min_replicas=0"),
        (["--gpus", "8"], "is for --estimate"),
        (["--card", "h100"], "--card h100 is for --estimate"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, arguments: list[str], said: str):
    with pytest.raises(UsageError, match=re.escape(said)):
        command(tmp_path, "units=layer4=0-9", *arguments)


def finished(tmp_path: Path, planned: int, done: int) -> Run:
    """A run of which some units are done, each a little slower than the one before."""
    sources = [*RESNET, f"paths.runs={tmp_path}/runs", "units=layer4=0-99"]
    run = Run.create(load(sources))
    units = [Unit(target="net", layer="layer4", index=index) for index in range(planned)]
    run.set_plan(units, 1)
    for unit in units[:done]:
        spent = {"backbone": ServiceUsage(requests=1, seconds=1.0 + unit.index)}
        run.publish(samples.record(unit, turns=(samples.turn(spent=spent), samples.turn(1, spent=spent))))
    return run


def test_a_card_chooses_no_records(tmp_path: Path):
    run = finished(tmp_path, planned=4, done=2)
    with pytest.raises(UsageError, match="--card h100 chooses among measured rates"):
        command(tmp_path, "units=layer4=0-9", "--estimate", "--card", "h100", "--rates", run.files.root)


def test_a_run_with_records_is_estimated_from_them(tmp_path: Path):
    run = finished(tmp_path, planned=40, done=5)
    said = command(tmp_path, "units=layer4=0-99", "--estimate", models=[])
    assert f"35 of 40 investigations are pending in {run.files.root}" in said
    assert f"measured: 5 records of {run.files.root}" in said
    assert "backbone 3 s a request" in said
    assert "an investigation asks 2 times, in all for 2" in said
    assert "not included in these tests, as no times are known: generator, target" in said
    assert "4 min" in said, said


def test_another_runs_records_can_be_named(tmp_path: Path):
    run = finished(tmp_path, planned=4, done=4)
    said = command(tmp_path, "name=y", "units=layer4=0-9", "--estimate", "--rates", run.files.root)
    assert f"measured: 4 records of {run.files.root}" in said
    assert "units: 10 units" in said


def test_a_finished_run_leaves_nothing(tmp_path: Path):
    finished(tmp_path, planned=3, done=3)
    assert "nothing is pending: 0 of 3" in command(tmp_path, "units=layer4=0-99", "--estimate", models=[])
