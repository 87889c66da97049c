"""Runs in the published layout: what is written, and that it is the same after it was imported again."""

import base64
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openmaia.config.loading import load
from openmaia.core.images import EncodedImage
from openmaia.core.units import Unit
from openmaia.interop import histories, labels
from openmaia.interop.importing import Importer
from openmaia.runs.files import Files
from tests.conftest import REPOSITORY
from tests.reporting import making

CONFIG = load(["name=x", "units=all", "target.name=net"])


def exported(run: Path, to: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openmaia.cli.main", "export", "maia", str(run), "--to", str(to)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=REPOSITORY)


def test_run_is_the_same_after_export_and_import(tmp_path: Path):
    run = making.run(tmp_path / "runs", layer="blocks/1")
    done = exported(tmp_path / "runs/tiny", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expected = f"2 investigations; 1 left out that ended with limit -> {tmp_path}/out"
    assert done.stdout.splitlines()[-1] == expected
    report = Importer(str(tmp_path / "out"), str(tmp_path / "in")).run()
    found = {label.unit: label for label in labels.read(Files(str(tmp_path / "in")))}
    for investigation in sorted(run.done())[:2]:
        record, label = run.record(investigation), found.pop(investigation.unit.index)
        answer = record.turns[-1].reply.partition("[LABEL 1]: ")[2]
        assert (label.method, label.target, label.layer) == (record.backbone, record.unit.target, record.unit.layer)
        assert (label.labels, label.text) == ((answer,), record.description)
        assert label.score == pytest.approx((9.0 + 4.0) / 2 if label.unit else (1.0 + 4.0) / 2)
        results = json.loads((tmp_path / "out" / label.source / "eval_results.json").read_text())
        for side, tested in (("positive", label.positive), ("negative", label.negative)):
            assert [prompt for prompt, _ in tested] == results[f"{side}_prompts"]
            assert [activation for _, activation in tested] == results[f"{side}_scores"]
            assert len(tested) == 2
    assert (found, report.refused) == ({}, [])


def test_history_holds_the_whole_conversation(tmp_path: Path):
    record = making.record(Unit(target="net", layer="l", index=3), CONFIG)
    folder = histories.locate_folder(tmp_path, record.backbone, record.unit)
    histories.write(folder, record)
    said = json.loads((folder / "history.json").read_text())
    assert [one["role"] for one in said] == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert [one["content"][0]["text"] for one in said if one["role"] == "assistant"] == [t.reply for t in record.turns]
    (url,) = [part["image_url"]["url"] for one in said for part in one["content"] if part["type"] == "image_url"]
    image = EncodedImage(data=base64.b64decode(url.removeprefix("data:image/png;base64,")))
    (shown,) = [part for part in record.turns[0].observation if isinstance(part, EncodedImage)]
    assert np.array_equal(image.pixels, shown.pixels)
    assert (folder / "description.txt").read_text() == "a striped cat\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["history.json", "experiment.html", "description.txt", "label.txt"]
    )


def test_images_of_the_evaluation_are_written_with_their_scores(tmp_path: Path):
    making.run(tmp_path / "runs")
    assert exported(tmp_path / "runs/tiny", tmp_path / "out").returncode == 0
    (folder, *_) = sorted((tmp_path / "out").rglob("positive_images"))
    results = json.loads((folder.parent / "eval_results.json").read_text())
    assert (results["positive_scores"], results["negative_scores"]) == ([1.0, 4.0], [2.0, 5.0])
    assert (results["average_positive_score"], results["average_negative_score"]) == (2.5, 3.5)
    for side in ("positive", "negative"):
        assert len(results[f"{side}_prompts"]) == len(list((folder.parent / f"{side}_images").glob("img_*.png"))) == 2


def test_texts_of_others_stay_texts(tmp_path: Path):
    record = making.record(Unit(target="net", layer="l", index=3), CONFIG, text=making.HOSTILE)
    for name in (making.HOSTILE, "../../../above", "/absolute", ".hidden"):
        folder = histories.locate_folder(tmp_path / "out", name, record.unit)
        histories.write(folder, dataclasses.replace(record, backbone=name))
        assert folder.resolve().is_relative_to((tmp_path / "out").resolve())
        page = (folder / "experiment.html").read_text()
        assert "<script>" not in page and "<img src=x" not in page


def test_half_of_a_surrogate_pair_is_written(tmp_path: Path):
    record = making.record(Unit(target="net", layer="l", index=3), CONFIG, text="cut \ud83d")
    histories.write(tmp_path / "x", record)
    assert "cut" in (tmp_path / "x/description.txt").read_text()


def test_nothing_is_overwritten(tmp_path: Path):
    making.run(tmp_path / "runs")
    exported(tmp_path / "runs/tiny", tmp_path / "out")
    again = exported(tmp_path / "runs/tiny", tmp_path / "out")
    assert again.returncode == 2
    assert "exists already; give another folder, or remove it" in again.stderr
