"""Runs configs/demo.yaml and saves screenshots of its report for README and docs: `python -m tests.screenshots [RUN [TUTORIAL]]`.

RUN is the folder of a finished run of that config, which then is not run again, TUTORIAL that of the run `small` of
docs/tutorial.md, whose descriptions the tutorial shows. `layer` has copies of its units, and `going` is the run as it was before its
last units. All pictures are drawn scenes, so that the screenshots may be part of the repository.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PIL import Image

from measure.benchmarks.browser import write_page, write_tiles
from openmaia.core.units import Unit
from openmaia.reporting.browser.report import Report
from openmaia.reporting.browser.write import write_report
from openmaia.reporting.tables import UnitRow
from openmaia.runs.ids import InvestigationId
from openmaia.runs.lease import held
from openmaia.runs.progress import ProgressFile
from openmaia.runs.results import record_name
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.chromium import Tab, browser

OUT = REPOSITORY / "docs/screenshots"
UNIT = {"unit": (1440, 1560), "unit-phone": (390, 1700)}
"""The sizes of the pictures of a unit's page, down to the end of the test."""

SIZES = {"": (1440, 900), "-phone": (390, 844)}
COPIES = 64
DONE, RUNNING = 17, 4
"""Of the run that goes on, whose next unit has failed. The others wait."""
FAILURE = "ServiceError: the generator ended twice while it drew for this unit"
TEXTS = "document.body?.dataset.ready === 'texts'"
DRAW = "document.querySelector('#live [type=text]').value = 'a red boat on the sea'; document.querySelector('#live .ask button').click()"
DRAWN = "document.querySelectorAll('#live {} li').length === 10 && [...document.querySelectorAll('#live img')].every((image) => image.complete)"
TO_TOP = "document.querySelector('{}').scrollIntoView()"
COMPLETE = "[...document.querySelectorAll('#wall img')].every((image) => image.complete)"
WALL = "(({x, y, right, bottom}) => [x, y, right, bottom])(document.getElementById('wall').getBoundingClientRect())"
"""Where the wall of the report is, in pixels."""


def main(run: str | None = None, tutorial: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = run or demo(folder)
        with browser(folder / "profile") as tab:
            tab.resize(1440, 900)
            open_report(tab, run)
            save(tab, "report", folder)
            places = "[...Array(openmaia.table.size).keys()].map(openmaia.href)"
            unit = tab.run(f"new URL({places}.find((each) => each?.includes('stage4/117-')), location).href")
            for name, size in UNIT.items():
                tab.resize(*size)
                tab.open(unit)
                save(tab, name, folder)
            first_screens(tab, "layer", layer(run, folder / "layer").as_uri(), folder)
            with going(run, folder / "going") as made, served(made) as address:
                first_screens(tab, "going", address, folder)
            with served(run, "--live") as address:
                tab.resize(*SIZES[""])
                tab.open(address, TEXTS)
                tab.run(f"document.getElementById('live').open = true; {DRAW}")
                answers(tab, "live", ".ranked", folder)
                tab.run("document.querySelector('#live .answer button').click()")
                answers(tab, "why", ".why .ranked", folder)
            if tutorial:
                tab.resize(1000, 900)
                open_report(tab, tutorial)
                save(tab, "tutorial", folder, tab.run(WALL))


def answers(tab: Tab, name: str, units: str, folder: Path) -> None:
    """Saves a live answer on a wide screen and on a telephone, from its beginning. Its images are loaded when they are near."""
    for end, size in SIZES.items():
        tab.resize(*size)
        tab.wait(f"document.querySelector('#live {units}')")
        tab.run(TO_TOP.format("#live .why" if name == "why" else "#live"))
        tab.wait(DRAWN.format(units))
        bottom = min(tab.run("document.getElementById('live').getBoundingClientRect().bottom"), size[1])
        save(tab, f"{name}{end}", folder, (0, 0, size[0], bottom))


def first_screens(tab: Tab, name: str, address: str, folder: Path) -> None:
    """Saves the first page of a report on a wide screen and on a telephone."""
    for end, size in SIZES.items():
        tab.resize(*size)
        tab.open(address, TEXTS)
        tab.wait(COMPLETE)
        save(tab, f"{name}{end}", folder)


def layer(run: str, root: Path) -> Path:
    """Writes the first page of a report of COPIES copies of each unit, with scores by chance."""
    report, draw = Report([Run.open(run)]), random.Random(0)
    real = [row for row in report.summaries[0].rows if row.header]

    def copy(number: int) -> UnitRow:
        base = real[number % len(real)]
        unit = Unit(target=base.unit.target, layer="stage4", index=number)
        # Above chance, so that the verdict fits.
        low = 0.5 + draw.random() / 2
        controls = tuple(replace(each, auc=(1 + low) / 2, low=low) for each in base.verdict.controls)
        verdict, page = replace(base.verdict, controls=controls), f"units/copies/{number}-0.html"
        own = InvestigationId(unit=unit, replicate=0)
        return replace(base, investigation=own, verdict=verdict, page=page, class_name="")

    rows = [copy(number) for number in range(len(real) * COPIES)]
    write_page(report, rows, root, has_tiles=True)
    write_tiles(report, rows, root)
    return root / "index.html"


@contextmanager
def going(run: str, folder: Path) -> Iterator[str]:
    """Yields the folder of a copy of a run as it was before its last units: some run, one has failed, the others wait."""
    later = ("report", "evaluation.json", "*.parquet", "reliability.json", "truth.json", "random_words")
    top = shutil.copytree(
        run,
        folder / Path(run).name,
        ignore=lambda at, names: shutil.ignore_patterns(*later)(at, names) if at == run else [],
    )
    # Tests have no scores before the last one has ended.
    (Path(top) / "trials").rename(folder / "none")
    (Path(top) / "evaluation").rename(Path(top) / "trials")
    made = Run.open(str(top))
    for number, each in enumerate(made.plan()[DONE:]):
        turns = made.record(each).turns
        made.files.delete(record_name(each))
        made.files.delete(f"trials/{each.path}.parquet")
        for turn in turns[: number + 2] if number < RUNNING else ():
            made.journal(each).append(turn)
    running, failed = made.plan()[DONE:][:RUNNING], made.plan()[DONE:][RUNNING]
    made.fail(failed, FAILURE)
    with held(made.files):
        ProgressFile(made).write([(each, time.time() - 40 + 9 * number) for number, each in enumerate(running)])
        yield str(top)


@contextmanager
def served(run: str, *options: str) -> Iterator[str]:
    """Starts `openmaia view` and yields its address."""
    command = [sys.executable, "-m", "openmaia.cli.main", "view", run, *options, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(line.split()[1] for line in process.stdout if line.startswith("view: "))
        finally:
            process.terminate()


def demo(folder: Path) -> str:
    """Returns the folder of a new run of the demo."""
    places = [f"paths.runs={folder}/runs", f"paths.exemplars={folder}/exemplars"]
    command = [sys.executable, "-m", "openmaia.cli.main", "run", "configs/demo.yaml", *places]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return f"{folder}/runs/demo"


def open_report(tab: Tab, run: str) -> None:
    index = write_report([Run.open(run)])
    tab.open(index.as_uri(), TEXTS)
    tab.wait(COMPLETE)


def save(tab: Tab, name: str, folder: Path, box: tuple[float, float, float, float] | None = None) -> None:
    """Writes what is visible, or a box of it, as WebP, which is a third of the bytes of a PNG."""
    tab.picture(folder / "shot.png")
    with Image.open(folder / "shot.png") as shot:
        part = shot.crop(box) if box else shot
        part.convert("RGB").save(OUT / f"{name}.webp", quality=90, method=6)


if __name__ == "__main__":
    main(*sys.argv[1:])
