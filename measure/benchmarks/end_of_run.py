"""What the end of a run costs: scores, p-values, means, and what reads the results, on runs of made-up tests.

Writes its rows of end_of_run.csv beside this file; those of `end_of_large_run` stay.
"""

import contextlib
import csv
import io
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from measure.measuring import machine
from openmaia.config.loading import load
from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim, read_claims
from openmaia.evaluation.storage import to_parquet
from openmaia.evaluation.trials import EXEMPLARS, Stimulus, Trial
from openmaia.runs.results import RANDOM_WORDS, TRIALS, basis
from openmaia.runs.run import Run
from tests.helpers.samples import record

WIDTH, WORDS, PROMPTS, PHOTOGRAPHS = 512, 60, 8, 40
"""Units of a layer, random words, prompts of each role (two images each), and photographs."""
FOUND = 0.6
"""Share of the units whose images excite them."""
SIZES = (64, 512, 2_048)
STEPS = ("score", "means", "summary", "units", "show", "report")
OUT = Path(__file__).with_suffix(".csv")

Figures = Mapping[str, float]
"""CPU seconds, seconds and peak memory (MB) of a step."""


def measure(smoke: bool) -> dict[str, Any]:
    """The figures of each step, each in a process of its own."""
    found: dict[tuple[str, int], Figures] = {}
    for count in SIZES[:1] if smoke else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = make_run(Path(folder), count).files.root
            found |= {(step, count): apart(step, path) for step in STEPS}
    if not smoke:
        store(found, "whole")
    return {f"{step}_{count}": figures for (step, count), figures in found.items()}


def store(found: Mapping[tuple[str, int], Figures], files: str) -> None:
    """Writes the figures of steps by number of units to OUT, in place of earlier ones of the same steps and numbers.

    Args:
        files: Whether runs had their files `whole`, or `footers` alone.
    """
    where = {"machine": machine(), "date": date.today().isoformat()}
    rows: list[dict[str, Any]] = []
    if OUT.exists():
        with OUT.open(newline="") as file:
            rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["files"] != files or (row["step"], int(row["units"])) not in found]
    rows = kept + [
        {"files": files, "step": step, "units": count, **figures} | where for (step, count), figures in found.items()
    ]
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["files", "step", "units", "s", "cpu_s", "mb", *where])
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["files"], row["step"], int(row["units"]))))


def make_run(folder: Path, count: int) -> Run:
    """A run of finished and tested investigations that are not scored yet, in layers of WIDTH units."""
    run = Run.create(load(["name=made", "units=all", "target.name=net", f"paths.runs={folder}"]))
    units = [Unit(target="net", layer=f"layer{n // WIDTH}", index=n % WIDTH) for n in range(count)]
    run.set_plan(units, 1)
    draw, identity = np.random.default_rng(0), run.identity()
    for number, unit in enumerate(units):
        run.publish(record(unit, turns=(), labels=(f"thing {number % 97}", f"part {number}"), description="Things."))
    for claim in read_claims(run):
        run.write_artifact(TRIALS, claim.investigation, to_parquet(_trial(claim, draw, draw.random() < FOUND)))
    for layer in {unit.layer for unit in units}:
        for number in range(WORDS):
            unit = Unit(target="net", layer=layer, index=0)
            word = {"replicate": number, "description": f"word {number}", "labels": (f"word {number}",)}
            bound = basis(word | {"target": "net", "layer": layer, "index": 0, "drawn": ""}, identity)
            claim = Claim(unit=unit, method="random words", basis=bound, **word)
            run.write_artifact(RANDOM_WORDS, claim.investigation, to_parquet(_trial(claim, draw, found=False)))
    return run


def _trial(claim: Claim, draw: np.random.Generator, found: bool) -> Trial:
    stimuli = list(_stimuli(claim))
    matrix = draw.standard_normal((len(stimuli), WIDTH), np.float32)
    if found:
        matrix[: 2 * PROMPTS, claim.unit.index] += 2
    return Trial(
        claim=claim,
        outcome="tested",
        stimuli=tuple(
            Stimulus(**each, digest=f"image {n}", activation=float(matrix[n, claim.unit.index]))
            for n, each in enumerate(stimuli)
        ),
        matrix=matrix.astype(np.float16),
        location=np.zeros(WIDTH),
        scale=np.ones(WIDTH),
        looks=(PROMPTS,),
        standard=EXEMPLARS,
        exemplars=3.0,
    )


def _stimuli(claim: Claim) -> Iterator[dict[str, Any]]:
    for role in ("positive", "neutral", "unrelated"):
        of = "" if role == "unrelated" else f" of {claim.labels[0]} {claim.unit} {claim.replicate}"
        for prompt in range(PROMPTS):
            label = claim.labels[prompt % len(claim.labels)] if role == "positive" else ""
            yield from 2 * ({"role": role, "label": label, "prompt": f"{role} prompt {prompt}{of}"},)
    yield from PHOTOGRAPHS * ({"role": "random"},)


def score(run: Run) -> None:
    from openmaia.evaluation.run import score_run

    score_run(run, ())


def _summary(run: Run) -> None:
    from openmaia.evaluation.analysis.verdict import write_summary

    write_summary(run)


def _units(run: Run) -> None:
    from openmaia.api.runs import load as load_run

    load_run(run.files.root).units()


def _show(run: Run) -> None:
    from openmaia.cli.commands.results import show

    with contextlib.redirect_stdout(io.StringIO()):
        show(run.files.root)


def _means(run: Run) -> None:
    from openmaia.evaluation.analysis.summary import EVALUATION_FILE, run_scores

    run.files.delete(EVALUATION_FILE)
    run_scores(run, run.config()["evaluate"]["bootstrap"])


def _report(run: Run) -> None:
    from openmaia.reporting.browser.write import write_report

    write_report([run])


def apart(step: str, path: str) -> Figures:
    """The figures of a step on the run at `path`, in a process of its own."""
    works: dict[str, Callable[[Run], None]] = {
        "score": score,
        "means": _means,
        "summary": _summary,
        "units": _units,
        "show": _show,
        "report": _report,
    }
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_timed, args=(works[step], path, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _timed(work: Callable[[Run], None], path: str, results: Any) -> None:
    began, used = time.monotonic(), time.process_time()
    work(Run.open(path))
    results.send(
        {
            "s": round(time.monotonic() - began, 2),
            "cpu_s": round(time.process_time() - used, 2),
            "mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
    )
