"""Whole folders in, one readable list out; exemplars out again; and the two commands."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmaia.agent.tasks import task
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Exemplar, UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import STORE_VERSION, ExemplarStore
from openmaia.interop import labels
from openmaia.interop.export import export
from openmaia.interop.importing import Importer
from openmaia.runs.files import Files
from tests.conftest import REPOSITORY
from tests.helpers.permissions import obeyed_permissions
from tests.interop import published
from tests.interop.published import ACTIVATIONS, SIDE, layer, prompts, result, synthetic_layer
from tests.interop.test_exemplars import shown


def everything(root: Path) -> Path:
    """One of each."""
    layer(root / "exemplars" / "resnet152" / "imagenet" / "layer4", thresholds=None)
    layer(root / "exemplars" / "resnet152" / "imagenet" / "layer3", activations=None)
    synthetic_layer(root / "exemplars" / "synthetic_neurons" / "mono")
    synthetic_layer(root / "exemplars" / "synthetic_neurons" / "or", activations=ACTIVATIONS)
    result(root / "results" / "local-google" / "gemma" / "resnet152" / "layer4" / "122")
    result(root / "results" / "local-google" / "gemma" / "resnet152" / "layer4" / "7", history_json="[")
    for name, data in {
        "neuron_indices/resnet152.json": {"layer4": [122, 7, 122]},
        "labels/or.json": [{"label": "a_b", "image_names": ["x"], "activations": [2.0]}],
        "labels/mono.json": [{"label": "dog", "image_names": ["x"], "activations": [0.9]}],
        "notes.json": {"colour": "blue"},
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(json.dumps(data))
    prompts(root / "prompts")
    (root / "milan.csv").write_text("layer,unit,description\nlayer4,122,ties\n")
    (root / "other.csv").write_text("a,b\n1,2\n")
    (root / "net.pth").write_bytes(b"\x80\x04.")
    return root


def test_everything_below_a_folder_is_imported_or_refused(tmp_path: Path):
    out = tmp_path / "out"
    report = Importer(str(everything(tmp_path / "in")), str(out)).run()
    assert report.imported == [
        f"exemplars of resnet152/layer4 on imagenet: 3 units, 3 each -> {out}/resnet152/imagenet",
        f"exemplars of synthetic_neurons/mono on synthetic: 3 units, 3 each -> {out}/synthetic_neurons/synthetic",
        "what 1 synthetic units (mono) were made for",
        "what 1 synthetic units (or) were made for",
        f"a list of 2 units of resnet152, which needs no copy: units={tmp_path}/in/neuron_indices/resnet152.json",
        f"prompts (prompts/claude): task.name={out}/tasks/claude",
        f"prompts (prompts/open): task.name={out}/tasks/open-bias",
        f"prompts (prompts/open): task.name={out}/tasks/open",
        "answers by results/local-google/gemma on resnet152: 2",
        f"4 labels -> {out}/labels.jsonl",
    ]
    assert [line.split(":")[0] for line in report.refused] == [
        "exemplars/resnet152/imagenet/layer3",
        "exemplars/synthetic_neurons/or",
        "milan.csv",
        "net.pth",
        "notes.json",
        "other.csv",
        "results/local-google/gemma/resnet152/layer4/7",
    ]
    assert all("\n" not in line for line in report.lines())
    assert [(label.method, label.layer, label.unit, label.labels) for label in labels.read(Files(str(out)))] == [
        ("ground truth", "mono", 0, ("dog",)),
        ("ground truth", "or", 0, ("a or b",)),
        ("results/local-google/gemma", "layer4", 7, ("bow ties", "neckwear")),
        ("results/local-google/gemma", "layer4", 122, ("bow ties", "neckwear")),
    ]


def test_lists_of_units_say_what_they_name(tmp_path: Path):
    folder = tmp_path / "neuron_indices"
    folder.mkdir()
    lists: dict[str, Any] = {"net": {"a": [1, 2, 1]}, "test": {"test": {"a": [3.0], "b": [4, 5]}}}
    lists |= {"no": {"a": ["x"]}, "empty": {}, "none": {"a": []}, "number": 5, "null": None}
    for name, content in lists.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    report = Importer(str(tmp_path), str(tmp_path / "out")).run()
    assert [line.partition(", which")[0] for line in report.imported] == [
        "a list of 2 units of net",
        "a list of 3 units of test",
    ]
    assert report.derived == ["neuron_indices/net.json: 1 units are listed twice, and count once"]
    assert report.refused == [
        f"neuron_indices/{name}.json: is neither a list of units nor one of synthetic units"
        for name in ("empty", "no", "none", "null", "number")
    ]


def test_imported_prompts_are_tasks(tmp_path: Path):
    prompts(tmp_path / "in" / "prompts")
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    claude, open_, bias = (task.load(str(tmp_path / "out/tasks" / name)) for name in ("claude", "open", "open-bias"))
    assert claude.instructions("our API", is_whole=True) == "the instruments of claude {x}\n"
    assert (open_.user, bias.user) == ("describe the unit (open)\n", "look for biases\n")
    assert claude.final == open_.final == "answer now\n", "the published code reads final.txt from the folder `open`"
    assert not claude.rule.demands and not claude.rule.confirm


def test_prompts_replace_no_others(tmp_path: Path):
    for place in ("in/prompts", "in/old/prompts"):
        prompts(tmp_path / place)
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert [line.partition(":")[0] for line in report.imported] == [
        f"prompts (old/prompts/{name})" for name in ("claude", "open", "open")
    ]
    assert ["would replace" in line for line in report.refused] == [True, True]


def test_prompts_without_a_question_are_refused(tmp_path: Path):
    (tmp_path / "in/prompts/x").mkdir(parents=True)
    (tmp_path / "in/prompts/x/api.txt").write_text("the instruments")
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert report.imported == [] and report.refused[0].startswith("prompts/x: holds api.txt, but no question")
    assert not (tmp_path / "out").exists()


def test_label_tables_need_the_name_of_their_network(tmp_path: Path):
    (tmp_path / "a.csv").write_text("layer,unit,description\nlayer4,122,ties\n")
    assert "give --target" in Importer(str(tmp_path), str(tmp_path / "out")).run().refused[0]
    report = Importer(str(tmp_path), str(tmp_path / "out"), target="net", method="GPT4").run()
    assert report.imported[0] == "labels by GPT4 of 1 units (a.csv)"
    assert [label.key for label in labels.read(Files(str(tmp_path / "out")))] == [("GPT4", "net", "layer4", 122)]


def test_labels_that_collide_are_refused(tmp_path: Path):
    for name, said in {"a": "ties", "b": "dogs"}.items():
        (tmp_path / f"{name}.csv").write_text(f"layer,unit,description\nlayer4,122,{said}\n")
    report = Importer(str(tmp_path), str(tmp_path / "out"), target="net").run()
    assert report.refused[0].startswith("b.csv: labels layer4/122 by MILAN again, after a.csv")
    assert [label.labels for label in labels.read(Files(str(tmp_path / "out")))] == [("ties",)]


def test_import_writes_only_to_the_destination(tmp_path: Path):
    before = {path: path.stat().st_mtime_ns for path in everything(tmp_path / "in").rglob("*")}
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "in").rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


def test_hostile_names_stay_below_the_destination(tmp_path: Path):
    layer(tmp_path / "in" / "%2e%2e" / "a b☃" / "%2Flayer")
    (tmp_path / "in" / "\n\x1b[2J\udcff.csv").write_text("a,b\n")
    report = Importer(str(tmp_path / "in"), str(tmp_path / "deep" / "out"), dataset="../..", target="../../t").run()
    assert len(report.imported) == 1
    assert all(line.isprintable() for line in report.lines())
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "in" not in path.parents]
    assert outside
    assert all(tmp_path / "deep" / "out" in path.parents for path in outside)


def test_folder_with_undecodable_name_is_refused(tmp_path: Path):
    layer(tmp_path / "in" / "net" / "imagenet" / "layer\udcff")
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert ["unprintable" in line for line in report.refused] == [True]


def test_pipes_and_devices_do_not_block(tmp_path: Path):
    os.mkfifo(tmp_path / "a.json")
    os.mkfifo(tmp_path / "images.npy")
    (tmp_path / "b.csv").symlink_to("/dev/zero")
    report = Importer(str(tmp_path), str(tmp_path / "out")).run()
    assert [line.split(":")[1] for line in report.refused] == [
        " images.npy is no regular file", " is no regular file", " is no regular file",
    ]  # fmt: skip


def test_unreadable_folder_is_reported_and_the_rest_imported(tmp_path: Path):
    (tmp_path / "closed").mkdir(0o000)
    (tmp_path / "a.csv").write_text("layer,unit,description\nlayer4,122,ties\n")
    with obeyed_permissions():
        report = Importer(str(tmp_path), str(tmp_path / "out"), target="net").run()
    assert report.refused == ["closed: cannot be read (Permission denied)"]
    assert len(labels.read(Files(str(tmp_path / "out")))) == 1


@pytest.mark.parametrize("huge", ["average_positive_score", "positive_scores"])
def test_damaged_answer_costs_no_other_label(tmp_path: Path, huge: str):
    """A number beyond those of a float raised OverflowError, after which no label had been written."""
    units = tmp_path / "in" / "gemma" / "net" / "layer4"
    for unit in (7, 8):
        result(units / str(unit))
    file = units / "7" / "eval_results.json"
    data = json.loads(file.read_text())
    file.write_text(
        json.dumps(data | {huge: 10**400 if huge.startswith("average") else [10**400] * len(data["positive_scores"])})
    )
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert len(report.refused) == 1 and "too large" in report.refused[0]
    assert [label.unit for label in labels.read(Files(str(tmp_path / "out")))] == [7, 8]


def test_exemplars_that_cannot_be_stored_cost_no_other(tmp_path: Path):
    place = tmp_path / "in" / "net" / "imagenet"
    layer(
        place / "wide",
        images=np.zeros((1, 1, 3, 1, 16_384), dtype=np.uint8),
        masks=None,
        activations=[[1.0]],
        thresholds=[0.5],
    )
    layer(place / ("x" * 201))
    layer(place / "good")
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert ["at most 16,383 pixels" in report.refused[0], "too long" in report.refused[1]] == [True, True]
    assert len(report.imported) == 1


def test_second_import_adds_only_new_layers(tmp_path: Path):
    place = tmp_path / "in" / "net" / "imagenet"
    layer(place / "layer4", thresholds=None)
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    again = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert "imported before" in again.imported[0]
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    layer(place / "layer3")
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    store = ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet")
    assert store.layers() == ["layer3", "layer4"]
    assert (store.manifest() or {})["estimated"] == ["threshold/layer4"]


def test_run_may_use_an_imported_store(tmp_path: Path):
    layer(tmp_path / "in" / "net" / "imagenet" / "layer4")
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet").claim({"target": "net", "network": "ab", "k": 15})


def test_computed_exemplars_are_not_mixed_with_imported(tmp_path: Path):
    store = ExemplarStore.at(str(tmp_path / "out"), "net", "imagenet")
    store.claim({"target": "net", "network": "ab"})
    layer(tmp_path / "in" / "net" / "imagenet" / "layer4")
    report = Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    assert report.imported == []
    assert [line.split(":")[0] for line in report.refused] == ["net/imagenet/layer4"]
    assert store.manifest() == {"target": "net", "network": "ab", "version": STORE_VERSION}


def test_single_target_may_be_renamed(tmp_path: Path):
    layer(tmp_path / "in" / "dino" / "imagenet" / "layer4")
    Importer(str(tmp_path / "in"), str(tmp_path / "out"), target="dino_vits8", dataset="mine").run()
    assert ExemplarStore.at(str(tmp_path / "out"), "dino_vits8", "mine").units("layer4") == {0, 1, 2}
    layer(tmp_path / "in" / "resnet" / "imagenet" / "layer4")
    with pytest.raises(UsageError, match="dino, resnet"):
        Importer(str(tmp_path / "in"), str(tmp_path / "other"), target="x").run()
    assert not (tmp_path / "other").exists()


def test_equal_images_are_stored_once(tmp_path: Path):
    images = published.images()
    images[1] = images[0]
    layer(tmp_path / "in" / "net" / "imagenet" / "layer4", images=images)
    Importer(str(tmp_path / "in"), str(tmp_path / "out")).run()
    import pyarrow as pa

    with pa.memory_map(str(next((tmp_path / "out").rglob("*.arrow")))) as stream:
        assert pa.ipc.open_file(stream).read_all().num_rows == 6


# -- export --------------------------------------------------------------------------------------------------------------


def test_export_and_import_are_inverse(tmp_path: Path):
    layer(tmp_path / "in" / "net" / "imagenet" / "layer4", units=np.array([2, 40, 41]))
    Importer(str(tmp_path / "in"), str(tmp_path / "a")).run()
    (said,) = export(str(tmp_path / "a"), str(tmp_path / "b"))
    assert "3 units, 3 each" in said
    assert "units.npy" in said
    folder = tmp_path / "b" / "net" / "imagenet" / "layer4"
    original = tmp_path / "in" / "net" / "imagenet" / "layer4"
    for name in ("images.npy", "masks.npy", "units.npy"):
        ours, theirs = np.load(folder / name), np.load(original / name)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs)
    for name in ("activations.csv", "thresholds.csv"):
        assert (folder / name).read_text() == (original / name).read_text()
    Importer(str(tmp_path / "b"), str(tmp_path / "c")).run()
    for index in (2, 40, 41):
        unit = Unit(target="net", layer="layer4", index=index)
        before = ExemplarStore.at(str(tmp_path / "a"), "net", "imagenet").read(unit)
        after = ExemplarStore.at(str(tmp_path / "c"), "net", "imagenet").read(unit)
        assert [e.activation for e in after.exemplars] == [e.activation for e in before.exemplars]
        assert [e.image.digest for e in after.exemplars] == [e.image.digest for e in before.exemplars]
        assert after.threshold == before.threshold
        assert np.array_equal(shown(after), shown(before))


def computed(index: int, sizes: list[tuple[int, int]], vector: bool = False) -> UnitExemplars:
    """As our own passes leave them: small maps, several kinds."""
    random = np.random.default_rng(index)
    rows = [
        Exemplar(
            kind=kind,
            rank=rank,
            activation=float(9 - rank),
            image=EncodedImage.of(random.integers(0, 256, (*size, 3), dtype=np.uint8)),
            box=(0.0, 0.0, float(size[1]), float(size[0])),
            map=None if vector else (random.random((7, 7)) * (9 - rank)).astype(np.float32),
        )
        for kind in ("bottom", "top")
        for rank, size in enumerate(sizes)
    ]
    return UnitExemplars(
        unit=Unit(target="net", layer="a/b", index=index),
        threshold=4.0,
        maxima=np.linspace(0, 9, 101),
        mean=1.0,
        std=1.0,
        exemplars=tuple(rows),  # pyright: ignore[reportArgumentType]
    )


def stored(root: Path, units: list[UnitExemplars]) -> Path:
    store = ExemplarStore.at(str(root), "net", "packages")
    store.claim({})
    store.write("a/b", units)
    return root


def test_computed_exemplars_are_exported_with_their_masks(tmp_path: Path):
    units = [computed(index, [(48, 40)] * 4) for index in range(2)]
    export(str(stored(tmp_path / "a", units)), str(tmp_path / "b"))
    folder = tmp_path / "b" / "net" / "packages" / "a%2Fb"
    images, masks = np.load(folder / "images.npy"), np.load(folder / "masks.npy")
    assert (images.shape, images.dtype) == ((2, 4, 3, 48, 40), np.uint8)
    assert (masks.shape, masks.dtype, set(np.unique(masks))) == ((2, 4, 1, 48, 40), np.uint8, {0, 1})
    top = units[1].of_kind("top")
    assert np.array_equal(images[1, 2].transpose(1, 2, 0), top[2].image.pixels)
    from openmaia.core.images import upsample

    assert top[2].map is not None
    assert np.array_equal(masks[1, 2, 0].astype(bool), upsample(top[2].map, 48, 40) > 4.0)
    assert (folder / "activations.csv").read_text().splitlines()[0] == "9.00000e+00,8.00000e+00,7.00000e+00,6.00000e+00"
    assert not (folder / "units.npy").exists()


def test_export_scales_images_and_cuts_rows(tmp_path: Path):
    units = [computed(0, [(48, 40), (40, 48), (48, 48)]), computed(2, [(48, 40)] * 2)]
    (said,) = export(str(stored(tmp_path / "a", units)), str(tmp_path / "b"))
    assert "images of 3 sizes, scaled to 224; 2 units, 2 each" in said
    folder = tmp_path / "b" / "net" / "packages" / "a%2Fb"
    assert np.load(folder / "images.npy").shape == (2, 2, 3, 224, 224)
    assert np.load(folder / "units.npy").tolist() == [0, 2]


def test_layer_without_maps_is_exported_unmasked(tmp_path: Path):
    units = [computed(0, [(SIDE, SIDE)] * 2, vector=True)]
    export(str(stored(tmp_path / "a", units)), str(tmp_path / "b"))
    assert np.load(next((tmp_path / "b").rglob("masks.npy"))).all()


def test_single_store_can_be_exported(tmp_path: Path):
    stored(tmp_path / "a", [computed(0, [(SIDE, SIDE)])])
    export(str(tmp_path / "a" / "net" / "packages"), str(tmp_path / "b"))
    assert (tmp_path / "b" / "net" / "packages" / "a%2Fb" / "images.npy").exists()


def test_export_overwrites_nothing(tmp_path: Path):
    root = stored(tmp_path / "a", [computed(0, [(SIDE, SIDE)])])
    export(str(root), str(tmp_path / "b"))
    before = {path: path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="exists already"):
        export(str(root), str(tmp_path / "b"))
    assert {path: path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file()} == before


def test_failed_export_leaves_no_files(tmp_path: Path):
    root = stored(tmp_path / "a", [computed(0, [(SIDE, SIDE)])])
    next(root.rglob("*.rows.parquet")).write_bytes(b"")
    from openmaia.core.errors import StoreError

    with pytest.raises(StoreError):
        export(str(root), str(tmp_path / "b"))
    assert [path for path in (tmp_path / "b").rglob("*") if path.is_file()] == []


# -- commands ------------------------------------------------------------------------------------------------------------


def openmaia(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        env=os.environ,
    )


@pytest.mark.slow
def test_commands_report_their_results(tmp_path: Path):
    layer(tmp_path / "in" / "net" / "imagenet" / "layer4", thresholds=None)
    (tmp_path / "in" / "bad.csv").write_text("a,b\n")
    done = openmaia("import", str(tmp_path / "in"), "--to", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("⠋")]
    assert [line for line in lines if line.endswith(":")] == ["imported:", "derived:", "refused:"]
    assert "  bad.csv: has no known format (by its header)" in lines
    done = openmaia("export", "maia", str(tmp_path / "a"), "--to", str(tmp_path / "b"))
    assert done.returncode == 0, done.stderr
    assert "net/layer4: 3 units, 3 each" in done.stdout


def test_import_of_nothing_is_a_usage_error(tmp_path: Path):
    (tmp_path / "bad.csv").write_text("a,b\n")
    done = openmaia("import", str(tmp_path), "--to", str(tmp_path / "a"))
    assert done.returncode == 2
    assert "bad.csv: has no known format" in done.stdout
    assert done.stderr == f"error: nothing below {tmp_path} could be imported\n"


@pytest.mark.parametrize("command", [["import", "nowhere"], ["export", "maia", "nowhere", "--to", "there"]])
def test_missing_folder_is_a_usage_error(command: list[str]):
    done = openmaia(*command)
    assert done.returncode == 2
    assert done.stderr.startswith("error: nowhere ")
    assert done.stderr.count("\n") == 1
