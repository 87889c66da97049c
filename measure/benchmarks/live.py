"""What a picture costs that is given to `openmaia view --live`, and how often the unit comes first from whose description it was drawn.

    python -m measure.benchmarks.live RUN...
    python -m measure.benchmarks.live real FOLDER

Appends to live.csv, a row per figure with the load of the machine. RUN is a finished run, such as those of configs/demo.yaml and
configs/efficientnet-lite0.yaml, with its exemplars. Latency is that of requests to the application in this process, with
EfficientNet-Lite0 and pictures of a telephone's size and of a web page's, none measured before: seconds by the clock, and of CPU,
which do not depend on what else the machine does. `equal` is the share of them with the activation of `probe`, by a target that was
loaded apart, on the pixels that `openmaia exemplars` would measure.

A unit is ranked on the images that its test drew from its description, which no agent saw: `own_in_ten` is the share of images with
it among the first ten of the units of the run, `own_in_ten_of_all` among the first ten of all units of the run's layers. Both have
their chance beside them. `responding` is the share on which its activation is above that on 90 % of its dataset.

`real` ranks the 144 units of EfficientNet-Lite0 in measure/science/real.csv instead, by the labels and verdicts there. Ten images of each
description are drawn as its test draws them, of parts that agents do not get, and FOLDER keeps the exemplars. The prompts of the agents are
not stored there, so that a test prompt may be one of them.
"""

import base64
import csv
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from measure.measuring import machine
from measure.science import real
from openmaia.analysis.responding import rank_units
from openmaia.assembly import evaluation, exemplars, targets
from openmaia.config import loading
from openmaia.core.images import EncodedImage
from openmaia.core.services import Probe, Target, UnitExemplars
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.prompts import write_prompts
from openmaia.evaluation.services import EvaluationServices
from openmaia.evaluation.storage import StoredTrials
from openmaia.evaluation.trials import draw_stimuli
from openmaia.exemplars.pictures import LONGEST_SIDE
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.stores import find_exemplars
from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import Run
from openmaia.serving.laboratory import Laboratory
from openmaia.serving.live import live_application
from tests.conftest import REPOSITORY

CSV = Path(__file__).with_name("live.csv")
SIZES = {"telephone": (4032, 3024), "web": (640, 480)}
OWN: dict[str, Any] = {"layer": "_conv_head", "index": 66}
"""The unit that is asked about."""
FIRST = 10
STRONG = 90.0
"""Percent."""


def main() -> None:
    load, rows = f"{os.getloadavg()[0]:.1f}", list[tuple[str, str, float, int]]()
    if sys.argv[1:2] == ["real"]:
        rows += [("efficientnet_lite0", name, *figure) for name, figure in real_units(sys.argv[2]).items()]
    else:
        rows += [("efficientnet_lite0", name, *figure) for name, figure in latency(20).items()]
        for path in sys.argv[1:]:
            run = Run.open(path)
            rows += [(run.config()["target"]["name"], name, *figure) for name, figure in own_units(run).items()]
    with CSV.open("a", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        if not opened.tell():
            writer.writerow(("network", "figure", "value", "count", "load", "machine", "date"))
        writer.writerows(
            (network, name, f"{value:.4g}", count, load, machine(), date.today())
            for network, name, value, count in rows
        )
    print(CSV.read_text())


def latency(count: int) -> dict[str, tuple[float, int]]:
    """Median seconds of requests, and how many there were."""
    with tempfile.TemporaryDirectory() as folder:
        laboratory, run = _opened(Path(folder))
        target = targets.target(loading.restore(run.config(), run.files.root))
        found: dict[str, tuple[float, int]] = {}
        equal: list[bool] = []
        with TestClient(live_application(run, laboratory), base_url="http://127.0.0.1") as client:
            for place in ("probe", "units", "effect"):
                for size, pixels in SIZES.items():
                    photos = [_photo(pixels, n) for n in range(count + 1)]
                    answers = [_timed(client, place, {**OWN, "picture": photo}) for photo in photos][1:]
                    for clock, values in zip(("s", "cpu_s"), zip(*answers, strict=True), strict=False):
                        found[f"{place}_{size}_{clock}"] = statistics.median(values), count
                    found[f"{place}_{size}_worst_s"] = max(seconds for seconds, _, _ in answers), count
                    if place == "probe":
                        equal += [
                            said["activation"] == _activation(target, photo)
                            for photo, (_, _, said) in zip(photos[1:], answers, strict=True)
                        ]
        return found | {"equal": (statistics.fmean(equal), len(equal))}


def _activation(target: Target, photo: str) -> float:
    """What `probe` measures on a picture that is shrunk as those of a dataset are."""
    # Converted first: of a file that is not decoded yet, Pillow would let the decoder shrink it, which gives other pixels.
    shown = Image.open(io.BytesIO(base64.b64decode(photo))).convert("RGB")
    shown.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    unit = Unit(target=target.info().name, layer=OWN["layer"], index=OWN["index"])
    return target.probe([Probe(unit=unit, image=EncodedImage.of(np.asarray(shown)))])[0].value


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


def _timed(client: TestClient, place: str, body: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    start, used = time.perf_counter(), time.process_time()
    answer = client.post(f"/live/{place}", json=body)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - start, time.process_time() - used, answer.json()


def own_units(run: Run) -> dict[str, tuple[float, int]]:
    """The figures of a finished run."""
    target, verdicts = targets.target(loading.restore(run.config(), run.files.root)), run_verdicts(run)
    stored = find_exemplars(run)
    assert stored.store is not None, stored.place
    return figures(target, stored.store, {each.unit for each in run.plan()}, _images(run, verdicts))


def real_units(folder: str) -> dict[str, tuple[float, int]]:
    """The figures of the units of real.csv."""
    config = loading.load([str(REPOSITORY / f"configs/{real.CONFIG}.yaml"), f"paths.exemplars={folder}"])
    store = exemplars.make(config, list(real.LAYERS))
    services = evaluation.in_process(config)
    described = {
        Claim(
            unit=Unit(target=config.target.name, layer=row["layer"], index=int(row["unit"])),
            labels=tuple(filter(None, row["labels"].split("; "))),
        ): Verdict(row["verdict"].replace("weak", "undecided"))
        for row in csv.DictReader(real.CSV.read_text().splitlines())
        if row["method"] == real.OWN
    }
    return figures(
        services.target, store, {claim.unit for claim in described}, _drawn(services, described, config.seed)
    )


def figures(
    target: Target, store: ExemplarStore, own: Collection[Unit], images: Iterable[tuple[Unit, Verdict, EncodedImage]]
) -> dict[str, tuple[float, int]]:
    """Shares of the images, and how many there are; of all descriptions, and of those that the test supports."""
    everything = {
        unit: known
        for layer in {unit.layer for unit in own}
        for unit, known in store.statistics(target.info().name, layer).items()
    }
    few = {unit: known for unit, known in everything.items() if unit in own}
    sets = {"": few, "_of_all": everything}
    found = {f"chance{name}": (min(FIRST / len(known), 1), len(known)) for name, known in sets.items()}
    rows = [
        (verdict is Verdict.SUPPORTED, {name: _place(target, image, known, unit) for name, known in sets.items()})
        for unit, verdict, image in images
    ]
    assert rows, "no images of tests"
    for name, chosen in (("", [row for _, row in rows]), ("supported_", [row for is_so, row in rows if is_so])):
        strong = [row for row in chosen if row[""][1] > STRONG]
        if chosen:
            found[f"{name}responding"] = len(strong) / len(chosen), len(chosen)
        for end, several in (("", chosen), ("_of_responding", strong)):
            for among in sets if several else ():
                share = statistics.fmean(row[among][0] < FIRST for row in several)
                found[f"{name}own_in_ten{among}{end}"] = share, len(several)
    return found


def _place(target: Target, image: EncodedImage, known: Mapping[Unit, UnitExemplars], unit: Unit) -> tuple[int, float]:
    """The number of units before this one, and its percentage."""
    ranked = rank_units(target, image, known)
    at = next((n for n, one in enumerate(ranked) if one.unit == unit), len(ranked))
    return at, ranked[at].percent if at < len(ranked) else 0.0


def _images(run: Run, verdicts: Mapping[InvestigationId, UnitVerdict]) -> Iterator[tuple[Unit, Verdict, EncodedImage]]:
    trials = StoredTrials(run)
    for investigation in sorted(run.evaluated()):
        for each in trials.read(investigation, images=True).stimuli:
            if each.role == "positive" and each.data:
                yield investigation.unit, verdicts[investigation].verdict, EncodedImage(data=each.data)


def _drawn(
    services: EvaluationServices, described: Mapping[Claim, Verdict], seed: int
) -> Iterator[tuple[Unit, Verdict, EncodedImage]]:
    for claim, verdict in described.items():
        prompts = write_prompts(claim, services.writer, real.IMAGES, seed)
        assert isinstance(prompts, list), prompts
        own = [each for each in prompts if each.role == "positive"]
        stimuli, images = draw_stimuli(own, services.generator, None)
        yield from (
            (claim.unit, verdict, image)
            for stimulus, image in zip(stimuli, images, strict=True)
            if not stimulus.missing_terms
        )


if __name__ == "__main__":
    main()
