"""What a picture costs that is given to `openmaia view --live`, and how often the unit comes first from whose description it was drawn.

    python -m measure.benchmarks.live RUN

Appends to live.csv, a row per figure with the load of the machine. RUN is a finished run of configs/demo.yaml. Latency is that of requests to the application
in this process, with EfficientNet-Lite0 and pictures of a telephone's size and of a web page's, none measured before: seconds by
the clock, and of CPU, which do not depend on what else the machine does. A unit is ranked on the images that its test drew from its description, which no
agent saw: `own_in_ten` is the share of images with it among the first ten, `responding` the share on which its activation is
above that on 90 % of its dataset.
"""

import base64
import csv
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from measure.measuring import machine
from openmaia.analysis.responding import PictureResponse
from openmaia.assembly import exemplars
from openmaia.config import loading
from openmaia.core.images import EncodedImage
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.verdict import Verdict, run_verdicts
from openmaia.evaluation.storage import StoredTrials
from openmaia.runs.run import Run
from openmaia.serving.laboratory import Laboratory
from openmaia.serving.live import live_application
from tests.conftest import REPOSITORY

CSV = Path(__file__).with_name("live.csv")
SIZES = {"telephone": (4032, 3024), "web": (640, 480)}
FIRST = 10
STRONG = 90.0
"""Percent."""


def main() -> None:
    load = f"{os.getloadavg()[0]:.1f}"
    figures = {**latency(20), **own_units(Run.open(sys.argv[1]))}
    with CSV.open("a", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        if not opened.tell():
            writer.writerow(("figure", "value", "count", "load", "machine", "date"))
        writer.writerows(
            (name, f"{value:.4g}", count, load, machine(), date.today()) for name, (value, count) in figures.items()
        )
    print(CSV.read_text())


def latency(count: int) -> dict[str, tuple[float, int]]:
    """Median seconds of requests, and how many there were."""
    with tempfile.TemporaryDirectory() as folder:
        laboratory, run = _opened(Path(folder))
        unit = {"layer": "_conv_head", "index": 66}
        found: dict[str, tuple[float, int]] = {}
        with TestClient(live_application(run, laboratory), base_url="http://127.0.0.1") as client:
            for place in ("probe", "units", "effect"):
                for size, pixels in SIZES.items():
                    times = [_timed(client, place, {**unit, "picture": _photo(pixels, n)}) for n in range(count + 1)][
                        1:
                    ]
                    for clock, values in zip(("s", "cpu_s"), zip(*times, strict=True), strict=True):
                        found[f"{place}_{size}_{clock}"] = statistics.median(values), count
                    found[f"{place}_{size}_worst_s"] = max(seconds for seconds, _ in times), count
        return found


def _opened(folder: Path) -> tuple[Laboratory, Run]:
    """EfficientNet-Lite0 with six units of three layers, and exemplars of few images."""
    sources = [str(REPOSITORY / "configs/efficientnet-lite0.yaml"), "pictures.limit=60", "exemplars.k=4"]
    config = loading.load([*sources, f"paths.runs={folder}/runs", f"paths.exemplars={folder}/exemplars", "units=_conv_head=66,31:_blocks.10=31,7:_blocks.2=0,1"])  # fmt: skip
    exemplars.make(config, list(config.target.layers))  # pyright: ignore[reportAttributeAccessIssue]
    run = Run.create(config)
    run.set_plan([Unit(target=config.target.name, layer=layer, index=index) for layer, index in (("_conv_head", 66), ("_conv_head", 31), ("_blocks.10", 31), ("_blocks.10", 7), ("_blocks.2", 0), ("_blocks.2", 1))], 1)  # fmt: skip
    return Laboratory.open(run), run


def _photo(size: tuple[int, int], seed: int) -> str:
    """A JPEG of smooth noise, as large as a photograph of this size, as base64."""
    coarse = np.random.default_rng(seed).integers(0, 256, (size[1] // 16, size[0] // 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
    return base64.b64encode(buffer.getvalue()).decode()


def _timed(client: TestClient, place: str, body: dict[str, Any]) -> tuple[float, float]:
    start, used = time.perf_counter(), time.process_time()
    answer = client.post(f"/live/{place}", json=body)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - start, time.process_time() - used


def own_units(run: Run) -> dict[str, tuple[float, int]]:
    """Shares of the images, and how many there are; of all descriptions, and of those that the test supports."""
    laboratory = Laboratory.open(run)
    verdicts = run_verdicts(run)
    rows = [(own, is_first, verdicts[investigation].verdict is Verdict.SUPPORTED) for investigation, own, is_first in _ranked(run, laboratory)]  # fmt: skip
    found: dict[str, tuple[float, int]] = {"chance": (FIRST / laboratory.count, laboratory.count)}
    for name, chosen in (("", rows), ("supported_", [row for row in rows if row[2]])):
        found[f"{name}own_in_ten"] = statistics.fmean(is_first for _, is_first, _ in chosen), len(chosen)
        strong = [row for row in chosen if row[0].percent > STRONG]
        found[f"{name}responding"] = len(strong) / len(chosen), len(chosen)
        found[f"{name}own_in_ten_of_responding"] = statistics.fmean(is_first for _, is_first, _ in strong), len(strong)
    return found


def _ranked(run: Run, laboratory: Laboratory) -> Iterator[tuple[Any, PictureResponse, bool]]:
    trials = StoredTrials(run)
    for investigation in sorted(run.evaluated()):
        for each in trials.read(investigation, images=True).stimuli:
            if each.role != "positive" or not each.data:
                continue
            ranked = laboratory.rank(EncodedImage(data=each.data))
            place = next(n for n, one in enumerate(ranked) if one.unit == investigation.unit)
            yield investigation, ranked[place], place < FIRST


if __name__ == "__main__":
    main()
