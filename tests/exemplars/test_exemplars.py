"""Exemplars of whole layers: exact, the same however the work is shared, and finished whatever dies."""

import multiprocessing
import random
import shutil
import subprocess
import sys
import time
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from openmaia.assembly import ConfigAssembly, exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import QUANTILES
from openmaia.core.units import Unit
from openmaia.exemplars import histogram, passes
from openmaia.exemplars.accumulator import find_bins
from openmaia.exemplars.summary import add, round_values
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import TargetNetwork, published
from tests.conftest import REPOSITORY
from tests.helpers.dissecting import first, ordered
from tests.helpers.images import sample_image, save
from tests.helpers.looking import loaded, look
from tests.helpers.stored import assert_alike, store
from tests.models.targets.test_targets import PREPROCESS, Tokens, small

LAYERS = ["0", "2"]
PICTURES = 420


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    for seed in range(PICTURES):
        save(root / f"{seed}.png", sample_image(seed, (40, 40 + seed % 7)))
    return root


def config(folder: Path, exemplars_root: Path, *overrides: str, network: str = "mortal") -> Config:
    return load(
        [
            str(REPOSITORY / "configs/closed-form.yaml"),
            "target.kind=network",
            "target.name=net",
            f"target.network=tests.helpers.networks:{network}",
            f"target.layers=[{','.join(LAYERS)}]",
            "pictures.kind=folder",
            f"pictures.folder={folder}",
            f"paths.exemplars={exemplars_root}",
            *overrides,
        ]
    )


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob("work-*"))


@pytest.fixture(scope="module")
def reference(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reference")
    exemplars.make(config(folder, root), LAYERS)
    assert not leftovers(root)
    return root


# -- exactness -----------------------------------------------------------------------------------------------------------


def targets() -> dict[str, tuple[NetworkTarget, str]]:
    return {
        "cnn": (NetworkTarget("net", TargetNetwork(module=small(), preprocess=PREPROCESS), ["conv"]), "conv"),
        "vit": (
            NetworkTarget("net", TargetNetwork(module=Tokens(8), preprocess=published((32, 32))), ["block"]),
            "block",
        ),
    }


@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_top_bottom_and_maps_are_those_of_a_plain_computation(kind: str):
    target, layer = targets()[kind]
    order, pictures = ordered([EncodedImage.of(np.asarray(sample_image(seed, (40, 40)))) for seed in range(150)])
    maps = np.stack([found[layer] for _, found in look(target, [p.pixels for p in pictures])]).astype(np.float64)
    maxima = round_values(maps.reshape(*maps.shape[:2], -1).max(axis=2))
    summary = first(target, order, pictures, [layer], 15, [range(150)])[layer]
    chosen = passes.choose(summary, order)
    for unit in range(maps.shape[1]):
        ranked = np.sort(maxima[:, unit])
        for kind, expected in (("top", ranked[::-1][:15]), ("bottom", ranked[:15])):
            values, numbers = (found[unit] for found in chosen[kind])
            assert values.tolist() == expected.tolist() == maxima[numbers, unit].tolist()
            assert len(set(numbers.tolist())) == 15
    places = passes.list_places({layer: chosen})
    images = (loaded(target, n, pictures[n]) for n in np.unique(places["number"]).tolist())
    for kept in passes.second_pass(target, images, [layer], places):
        for unit, small_map in zip(kept.places["unit"], kept.maps, strict=True):
            assert np.array_equal(small_map, maps[kept.number, unit].astype(np.float32))


@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_quantiles_and_moments_are_within_the_stated_error(kind: str):
    target, layer = targets()[kind]
    order, pictures = ordered([EncodedImage.of(np.asarray(sample_image(seed, (40, 40)))) for seed in range(150)])
    maps = np.stack([found[layer] for _, found in look(target, [p.pixels for p in pictures])]).astype(np.float64)
    units = maps.shape[1]
    positions = maps.transpose(1, 0, 2, 3).reshape(units, -1)
    summary = first(target, order, pictures, [layer], 15, [range(150)])[layer]
    rows = passes.describe_units(target.info(), layer, summary, 0.99)
    for unit in range(units):
        found = rows[unit].positions
        assert found is not None
        for q, value in zip(QUANTILES, found.quantiles, strict=True):
            # Four standard errors of a rank, of positions that are not independent within a picture; then one bin.
            rank = 4 * np.sqrt(q * (1 - q) / 150)
            low, high = np.quantile(positions[unit], [max(q - rank, 0), min(q + rank, 1)])
            slack = histogram.bound_error(np.array([low, high]), summary.scales[unit : unit + 1]).max()
            assert low - slack <= value <= high + slack
        assert found.mean == pytest.approx(positions[unit].mean(), abs=0.1 * positions[unit].std())
        assert found.variance == pytest.approx(positions[unit].var(), rel=0.2)
        assert found.positive == pytest.approx((positions[unit] > 0).mean(), abs=0.05)


def test_a_quantile_of_counted_values_is_off_by_at_most_a_bin():
    values = np.random.default_rng(0).normal(size=(3, 5001)) * np.array([[1e-3], [1.0], [1e4]])
    scales = histogram.choose_scales(np.abs(values).max(axis=1) / 3)
    counts = np.zeros((3, histogram.BINS), dtype=np.int32)
    at = find_bins(torch.from_numpy((values / scales[:, None]).astype(np.float32))).numpy()
    for unit in range(3):
        np.add.at(counts[unit], at[unit], 1)
    for q in (0.0, 0.001, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = np.quantile(values, q, axis=1)
        found = histogram.estimate_quantiles(counts, scales, values.min(axis=1), values.max(axis=1), [q])[0]
        assert (np.abs(found - exact) <= histogram.bound_error(exact, scales)).all()


def test_scale_of_a_quiet_unit_leaves_room_for_what_comes_later():
    """A class that no image of the sample shows, beside one that some show."""
    found = histogram.choose_scales(np.array([0.9, 1e-9, 1e-3, 0.0]))
    assert found.tolist() == [2.0**-1, 2.0**-13, 2.0**-10, 1.0]


def test_quantiles_of_a_unit_that_the_sample_did_not_show_end_at_its_extremes():
    """A sparse unit: its scale comes from a sample on which it was silent."""
    values = np.concatenate([np.zeros(950), np.random.default_rng(0).uniform(100, 500, 50)])[None]
    scales = np.ones(1, dtype=np.float32)
    counts = np.zeros((1, histogram.BINS), dtype=np.int32)
    np.add.at(counts[0], find_bins(torch.from_numpy(values[0].astype(np.float32))).numpy(), 1)
    found = histogram.estimate_quantiles(counts, scales, values.min(axis=1), values.max(axis=1), [0.99])[0]
    assert found[0] == pytest.approx(np.quantile(values, 0.99), rel=0.2)
    assert histogram.estimate_quantiles(counts, scales, np.array([-np.inf]), values.max(axis=1), [0.5])[
        0, 0
    ] == pytest.approx(0, abs=0.01)


# -- the same however the work is shared ---------------------------------------------------------------------------------


def test_any_number_of_workers_in_any_order_gives_the_same(folder: Path, reference: Path, tmp_path: Path):
    team = [exemplars.worker(config(folder, tmp_path)) for _ in range(5)]
    scales = team[0].scales(LAYERS)
    shares = np.array_split(np.arange(team[0].count()), 7)
    random.Random(0).shuffle(shares)
    found = [team[turn % 5].first(scales, share.tolist()) for turn, share in enumerate(shares)]
    places = team[1].choose(reduce(add, found))
    resumed = team[2].resume(LAYERS)
    assert resumed is not None and np.array_equal(resumed, places)
    shares = np.array_split(np.unique(places["number"]), 4)[::-1]
    parts = [
        part
        for worker, share in zip(team, shares, strict=False)
        for part in worker.second(LAYERS, places[np.isin(places["number"], share)])
    ]
    team[-1].finish(LAYERS, parts)
    assert_alike(store(tmp_path), store(reference), LAYERS)
    assert not leftovers(tmp_path)


def compute_on_ray(settings: Config) -> None:
    from openmaia.distributed.exemplars import team

    with team(settings, ConfigAssembly()) as workers:
        workers.compute(LAYERS, lambda done, total: None)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_share_of_a_dead_worker_on_ray_is_computed_again(
    folder: Path, reference: Path, tmp_path: Path, workers: int, ray_cluster: None
):
    grave = tmp_path / "grave"
    settings = config(folder, tmp_path / "made", f"ray.exemplar_workers={workers}")
    environment = {"env_vars": {"OPENMAIA_TEST_GRAVE": str(grave)}}
    task = ray.remote(num_cpus=0, runtime_env=environment)(compute_on_ray)
    ray.get(task.remote(settings), timeout=240)
    assert grave.exists(), "a worker died"
    assert_alike(store(tmp_path / "made"), store(reference), LAYERS)


def test_first_pass_that_ended_is_not_repeated(folder: Path, reference: Path, tmp_path: Path):
    interrupted = exemplars.worker(config(folder, tmp_path))
    scales = interrupted.scales(LAYERS)
    places = interrupted.choose(interrupted.first(scales, range(interrupted.count())))
    interrupted.second(LAYERS, places)
    seen: list[int] = []
    exemplars.make(config(folder, tmp_path), LAYERS, progress=lambda done, total: seen.append(done))
    assert min(seen) > interrupted.count(), "the second pass only"
    assert_alike(store(tmp_path), store(reference), LAYERS)
    assert not leftovers(tmp_path)


SCRIPT = """
import sys
from openmaia.assembly import exemplars
from openmaia.config.loading import load
exemplars.make(load(sys.argv[1:]), {layers!r})
"""


def computing(folder: Path, exemplars: Path) -> list[str]:
    """The command that computes exemplars in a process of its own."""
    sources = [
        str(REPOSITORY / "configs/closed-form.yaml"), "target.kind=network", "target.name=net",
        "target.network=tests.helpers.networks:mortal", f"target.layers=[{','.join(LAYERS)}]", "pictures.kind=folder",
        f"pictures.folder={folder}", f"paths.exemplars={exemplars}",
    ]  # fmt: skip
    return [sys.executable, "-c", SCRIPT.format(layers=LAYERS), *sources]


def compute(sources: list[str]) -> None:
    exemplars.make(load(sources), LAYERS)


@pytest.mark.slow
def test_killed_at_random_the_store_is_the_same_in_the_end(folder: Path, reference: Path, tmp_path: Path):
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__])  # so that torch is imported once for all of them
    sources = computing(folder, tmp_path)[3:]
    lot = random.Random(7)
    killed = 0
    for _ in range(6):
        process = forks.Process(target=compute, args=(sources,))
        process.start()
        # Where the work is: a kill during the imports would prove nothing.
        until = time.monotonic() + 60
        while process.is_alive() and not list(tmp_path.rglob("manifest.json")) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(lot.uniform(0, 1.0) if killed else lot.uniform(0, 0.5))
        killed += process.is_alive()
        process.kill()
        process.join()
    assert killed >= 3
    compute(sources)
    assert_alike(store(tmp_path), store(reference), LAYERS)
    assert not leftovers(tmp_path)


# -- bad input -----------------------------------------------------------------------------------------------------------


def test_a_unit_that_is_not_finite_is_marked_and_the_others_go_on(folder: Path, tmp_path: Path):
    store = exemplars.make(config(folder, tmp_path, "target.layers=[conv]", network="unsound"), ["conv"])
    assert store.states("conv") == {0: "ok", 1: "not finite", 2: "not finite", 3: "dead"}
    unit = store.read(Unit(target="net", layer="conv", index=0))
    assert len(unit.of_kind("top")) == 15
    assert np.isfinite(unit.maxima).all()


def test_a_store_of_something_else_is_refused_by_naming_what_differs(folder: Path, reference: Path):
    with pytest.raises(UsageError, match=r"k \(15 there, 7 wanted\).*Remove the folder"):
        exemplars.worker(config(folder, reference, "exemplars.k=7"))
    with pytest.raises(UsageError, match=r"network \('"):
        exemplars.worker(config(folder, reference, "target.layers=[conv]", network="unsound"))


def test_changed_pictures_are_named_with_what_to_do(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "pictures")
    given = tmp_path / "pictures", tmp_path / "store"
    exemplars.worker(config(*given))
    save(tmp_path / "pictures/new.png", sample_image(999_981))  # an image of the explore split
    with pytest.raises(
        UsageError, match=r"the pictures changed. .* compute exemplars anew with exemplars.dataset=NAME"
    ):
        exemplars.worker(config(*given))


def test_a_folder_that_changes_during_the_pass_is_the_users_to_mend(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "pictures")
    worker = exemplars.worker(config(tmp_path / "pictures", tmp_path / "store"))
    scales = worker.scales(LAYERS)
    for path in (tmp_path / "pictures").glob("*.png"):
        path.unlink()
    with pytest.raises(UsageError, match="was changed while exemplars were computed"):
        worker.first(scales, range(40))


def test_a_picture_that_was_replaced_is_noticed(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "pictures")
    worker = exemplars.worker(config(tmp_path / "pictures", tmp_path / "store"))
    scales = worker.scales(LAYERS)
    for path in (tmp_path / "pictures").glob("*.png"):
        save(path, sample_image(999_983))
    with pytest.raises(UsageError, match="was changed while exemplars were computed"):
        worker.first(scales, range(40))


@pytest.mark.slow
def test_full_disk_is_named_and_a_later_command_finishes(folder: Path, reference: Path, tmp_path: Path):
    command = computing(folder, tmp_path)
    # No file may grow beyond 16 kB: the results of the first pass fit, the images do not.
    full = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *command], capture_output=True, text=True)
    assert full.returncode != 0
    assert "could not be written" in full.stderr
    compute(command[3:])
    assert_alike(store(tmp_path), store(reference), LAYERS)
    assert not leftovers(tmp_path)


def test_a_layer_named_twice_is_computed_once(folder: Path, reference: Path):
    assert exemplars.worker(config(folder, reference)).missing(["0", "0", "2"]) == []


def test_a_layer_that_is_asked_for_later_joins_the_others(folder: Path, reference: Path, tmp_path: Path):
    for layer in LAYERS:
        made = exemplars.make(config(folder, tmp_path), [layer])
    assert sorted(made.layers()) == LAYERS
    assert_alike(made, store(reference), LAYERS)


@pytest.mark.parametrize(("k", "warning"), [(3, False), (40, True)])
def test_number_of_images_of_exemplars_is_said(folder: Path, tmp_path: Path, k: int, warning: bool):
    worker = exemplars.worker(config(folder, tmp_path, f"exemplars.k={k}"))
    assert f"the {k} most exciting of " in worker.remark()
    assert ("down to percentile" in worker.remark()) == warning


def test_a_network_that_takes_batches_finds_the_same(folder: Path, reference: Path, tmp_path: Path):
    """As on a GPU: processes read, and images wait for others of their size."""
    target = targets_of_config(config(folder, tmp_path), batch=8)
    made = exemplars.make(config(folder, tmp_path), LAYERS, target=target)
    assert_alike(made, store(reference), LAYERS)


def targets_of_config(settings: Config, batch: int) -> NetworkTarget:
    return NetworkTarget(
        "net", target_class(settings.target).network(settings.target, ""), LAYERS, device="cpu", batch=batch
    )
