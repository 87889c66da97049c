"""Exemplars of whole layers: exact, the same however the work is shared, and finished whatever dies."""

import hashlib
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from openmaia.cli.assembly import ConfigAssembly, exemplars
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import QUANTILES
from openmaia.core.units import Unit
from openmaia.exemplars import histogram, passes
from openmaia.exemplars.store import ExemplarStore
from openmaia.exemplars.summary import CLAMP, rounded
from openmaia.models.targets.hooked import NetworkTarget
from openmaia.models.targets.preprocess import TargetNetwork, published
from tests.conftest import REPOSITORY
from tests.helpers.dissecting import first, ordered
from tests.helpers.images import sample_image, save
from tests.helpers.looking import loaded, look
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


def contents(root: Path) -> dict[str, str]:
    found = (path for path in root.rglob("[!.]*") if path.is_file())
    files = {path.relative_to(root).as_posix(): path for path in found}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


@pytest.fixture(scope="module")
def reference(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reference")
    exemplars.make(config(folder, root), LAYERS)
    assert len(contents(root)) == 2 * len(LAYERS) + 2, "nothing of the work is left behind"
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
    maxima = rounded(maps.reshape(*maps.shape[:2], -1).max(axis=2))
    summary = first(target, order, pictures, [layer], 15, [range(150)])[layer]
    chosen = passes.choose(summary, order)
    for unit in range(maps.shape[1]):
        ranked = sorted(range(150), key=lambda n: (-maxima[n, unit], n))
        assert chosen["top"][1][unit].tolist() == ranked[:15]
        assert chosen["top"][0][unit].tolist() == [maxima[n, unit] for n in ranked[:15]]
        assert chosen["bottom"][1][unit].tolist() == sorted(range(150), key=lambda n: (maxima[n, unit], n))[:15]
    places = passes.wanted({layer: chosen})
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
    rows = passes.unit_rows(target.info(), layer, summary, 0.99)
    for unit in range(units):
        found = rows[unit].positions
        assert found is not None
        for q, value in zip(QUANTILES, found.quantiles, strict=True):
            # Four standard errors of a rank, of positions that are not independent within a picture; then one bin.
            rank = 4 * np.sqrt(q * (1 - q) / 150)
            low, high = np.quantile(positions[unit], [max(q - rank, 0), min(q + rank, 1)])
            slack = histogram.width(np.array([low, high]), summary.scales[unit : unit + 1]).max()
            assert low - slack <= value <= high + slack
        assert found.mean == pytest.approx(positions[unit].mean(), abs=0.1 * positions[unit].std())
        assert found.variance == pytest.approx(positions[unit].var(), rel=0.2)
        assert found.positive == pytest.approx((positions[unit] > 0).mean(), abs=0.05)


def test_a_quantile_of_counted_values_is_off_by_at_most_a_bin():
    values = np.random.default_rng(0).normal(size=(3, 5001)) * np.array([[1e-3], [1.0], [1e4]])
    scales = histogram.scale(np.abs(values).max(axis=1) / 3)
    counts = np.zeros((3, histogram.BINS), dtype=np.int32)
    at = histogram.bins(torch.from_numpy((values / scales[:, None]).astype(np.float32))).numpy()
    for unit in range(3):
        np.add.at(counts[unit], at[unit], 1)
    for q in (0.0, 0.001, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = np.quantile(values, q, axis=1)
        found = histogram.quantiles(counts, scales, values.min(axis=1), values.max(axis=1), [q])[0]
        assert (np.abs(found - exact) <= histogram.width(exact, scales)).all()


def test_scale_of_a_quiet_unit_leaves_room_for_what_comes_later():
    """A class that no image of the sample shows, beside one that some show."""
    found = histogram.scale(np.array([0.9, 1e-9, 1e-3, 0.0]))
    assert found.tolist() == [2.0**-1, 2.0**-13, 2.0**-10, 1.0]
    assert 7.0 / found[1] <= CLAMP


def test_quantiles_of_a_unit_that_the_sample_did_not_show_end_at_its_extremes():
    """A sparse unit: its scale comes from a sample on which it was silent."""
    values = np.concatenate([np.zeros(950), np.random.default_rng(0).uniform(100, 500, 50)])[None]
    scales = np.ones(1, dtype=np.float32)
    counts = np.zeros((1, histogram.BINS), dtype=np.int32)
    np.add.at(counts[0], histogram.bins(torch.from_numpy(values[0].astype(np.float32))).numpy(), 1)
    found = histogram.quantiles(counts, scales, values.min(axis=1), values.max(axis=1), [0.99])[0]
    assert found[0] == pytest.approx(np.quantile(values, 0.99), rel=0.2)
    assert histogram.quantiles(counts, scales, np.array([-np.inf]), values.max(axis=1), [0.5])[0, 0] == pytest.approx(
        0, abs=0.01
    )


# -- the same however the work is shared ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(
    folder: Path, reference: Path, tmp_path: Path, workers: int
):
    team = [exemplars.worker(config(folder, tmp_path)) for _ in range(workers)]
    job = team[0].begin(LAYERS)
    shards = random.Random(workers).sample(job.first, len(job.first))
    assert len(shards) >= 3
    for worker in team[1:]:
        worker.join(LAYERS)
    for turn, shard in enumerate(shards):
        team[turn % workers].first([shard])
    for worker in reversed(team):
        worker.save()
    assert team[0].begin(LAYERS).first == []
    second = team[0].choose()
    for turn, shard in enumerate(reversed(second)):
        team[turn % workers].second([shard])
    team[-1].finish()
    assert contents(tmp_path) == contents(reference)


def compute_on_ray(settings: Config) -> None:
    from openmaia.distributed.exemplars import team

    with team(settings, ConfigAssembly()) as workers:
        workers.compute(LAYERS, lambda done, total: None)


@pytest.mark.slow
def test_dead_worker_on_ray_changes_no_byte(folder: Path, reference: Path, tmp_path: Path, ray_cluster: None):
    grave = tmp_path / "grave"
    settings = config(folder, tmp_path / "made", "ray.exemplar_workers=2", "ray.save_seconds=0")
    environment = {"env_vars": {"OPENMAIA_TEST_GRAVE": str(grave)}}
    task = ray.remote(num_cpus=0, runtime_env=environment)(compute_on_ray)
    ray.get(task.remote(settings), timeout=240)
    assert grave.exists(), "a worker died"
    assert contents(tmp_path / "made") == contents(reference)


SCRIPT = """
import sys
from openmaia.cli.assembly import exemplars
from openmaia.config.loading import load
exemplars.make(load(sys.argv[1:]), {layers!r})
"""


def computing(folder: Path, exemplars: Path) -> list[str]:
    """The command that computes exemplars in a process of its own."""
    sources = [
        str(REPOSITORY / "configs/closed-form.yaml"), "target.kind=network", "target.name=net",
        "target.network=tests.helpers.networks:mortal", f"target.layers=[{','.join(LAYERS)}]", "pictures.kind=folder",
        f"pictures.folder={folder}", f"paths.exemplars={exemplars}", "ray.save_seconds=0",
    ]  # fmt: skip
    return [sys.executable, "-c", SCRIPT.format(layers=LAYERS), *sources]


@pytest.mark.slow
def test_killed_ten_times_at_random_the_store_is_the_same_in_the_end(folder: Path, reference: Path, tmp_path: Path):
    command = computing(folder, tmp_path)
    lot = random.Random(7)
    killed = 0
    for _ in range(10):
        process = subprocess.Popen(command)
        # Where the work is: a kill during the imports would prove nothing.
        until = time.monotonic() + 60
        while process.poll() is None and not list(tmp_path.rglob("manifest.json")) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(lot.uniform(0, 1.5) if killed else lot.uniform(0, 0.5))
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed >= 3
    subprocess.run(command, check=True, timeout=200)
    assert contents(tmp_path) == contents(reference)


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
    job = worker.begin(LAYERS)
    for path in (tmp_path / "pictures").glob("*.png"):
        path.unlink()
    with pytest.raises(UsageError, match="was changed while exemplars were computed"):
        worker.first(job.first[:1])


def test_a_picture_that_was_replaced_is_noticed(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "pictures")
    worker = exemplars.worker(config(tmp_path / "pictures", tmp_path / "store"))
    job = worker.begin(LAYERS)
    for path in (tmp_path / "pictures").glob("*.png"):
        save(path, sample_image(999_983))
    with pytest.raises(UsageError, match="was changed while exemplars were computed"):
        worker.first(job.first[:1])


@pytest.mark.slow
def test_a_full_disk_is_named_and_what_was_saved_is_used_again(folder: Path, reference: Path, tmp_path: Path):
    command = computing(folder, tmp_path)
    # No file may grow beyond 16 kB: summaries fit, the pictures do not.
    full = subprocess.run(["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *command], capture_output=True, text=True)
    assert full.returncode != 0
    assert "could not be written" in full.stderr
    subprocess.run(command, check=True, timeout=200)
    assert contents(tmp_path) == contents(reference)


def test_a_layer_named_twice_is_computed_once(folder: Path, reference: Path):
    assert exemplars.worker(config(folder, reference)).missing(["0", "0", "2"]) == []


def test_a_layer_that_is_asked_for_later_joins_the_others(folder: Path, reference: Path, tmp_path: Path):
    for layer in LAYERS:
        store = exemplars.make(config(folder, tmp_path), [layer])
    assert sorted(store.layers()) == LAYERS
    whole = ExemplarStore.at(str(reference), "net", "folder")
    for layer in LAYERS:
        unit = Unit(target="net", layer=layer, index=3)
        one, other = store.read(unit), whole.read(unit)
        assert [(e.kind, e.activation, e.image.digest) for e in one.exemplars] == [
            (e.kind, e.activation, e.image.digest) for e in other.exemplars
        ]
        assert one.threshold == other.threshold


@pytest.mark.parametrize(("k", "warning"), [(3, False), (40, True)])
def test_number_of_images_of_exemplars_is_said(folder: Path, tmp_path: Path, k: int, warning: bool):
    worker = exemplars.worker(config(folder, tmp_path, f"exemplars.k={k}"))
    assert f"the {k} most exciting of " in worker.remark()
    assert ("down to percentile" in worker.remark()) == warning


def test_a_network_that_takes_batches_finds_the_same(folder: Path, reference: Path, tmp_path: Path):
    """As on a GPU: processes read, many shards are finished together, and images wait for others of their size."""
    target = targets_of_config(config(folder, tmp_path), batch=8)
    store = exemplars.make(config(folder, tmp_path), LAYERS, target=target)
    alone = ExemplarStore.at(str(reference), "net", "folder")
    for layer in LAYERS:
        assert store.units(layer) == alone.units(layer)
        for index in store.units(layer):
            one, other = (each.read(Unit(target="net", layer=layer, index=index)) for each in (store, alone))
            assert [(e.kind, e.rank, e.image.digest) for e in one.exemplars] == [
                (e.kind, e.rank, e.image.digest) for e in other.exemplars
            ]
            assert [e.activation for e in one.exemplars] == pytest.approx([e.activation for e in other.exemplars], 2e-5)
            assert one.threshold == pytest.approx(other.threshold, rel=2e-5, abs=1e-6)


def targets_of_config(settings: Config, batch: int) -> NetworkTarget:
    return NetworkTarget(
        "net", target_class(settings.target).network(settings.target, ""), LAYERS, device="cpu", batch=batch
    )
