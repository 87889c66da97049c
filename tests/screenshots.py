"""Runs configs/demo.yaml and saves screenshots of its report for README and docs: `python -m tests.screenshots [RUN [TUTORIAL]]`.

RUN is the folder of a finished run of that config, which then is not run again, TUTORIAL that of the run `small` of
docs/tutorial.md, whose descriptions the tutorial shows. All pictures are drawn scenes, so that the screenshots may be part of
the repository.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from openmaia.reporting.browser.write import write_report
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.chromium import Tab, browser

OUT = REPOSITORY / "docs/screenshots"
UNIT = {"unit": (1440, 1560), "unit-phone": (390, 1700)}
"""The sizes of the pictures of a unit's page, down to the end of the test."""

LIVE = {"": (1440, 900), "-phone": (390, 844)}
DRAW = "document.querySelector('#live [type=text]').value = 'a red boat on the sea'; document.querySelector('#live .ask button').click()"
DRAWN = "document.querySelectorAll('#live {} li').length === 10 && [...document.querySelectorAll('#live img')].every((image) => image.complete)"
TO_TOP = "document.querySelector('{}').scrollIntoView()"
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
            with served(run) as address:
                tab.resize(*LIVE[""])
                tab.open(address, "document.body?.dataset.ready === 'texts'")
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
    for end, size in LIVE.items():
        tab.resize(*size)
        tab.wait(f"document.querySelector('#live {units}')")
        tab.run(TO_TOP.format("#live .why" if name == "why" else "#live"))
        tab.wait(DRAWN.format(units))
        bottom = min(tab.run("document.getElementById('live').getBoundingClientRect().bottom"), size[1])
        save(tab, f"{name}{end}", folder, (0, 0, size[0], bottom))


@contextmanager
def served(run: str) -> Iterator[str]:
    """Starts `openmaia view --live` and yields its address."""
    command = [sys.executable, "-m", "openmaia.cli.main", "view", run, "--live", "--port", "0"]
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
    tab.open(index.as_uri(), "document.body?.dataset.ready === 'texts'")
    tab.wait("[...document.querySelectorAll('#wall img')].every((image) => image.complete)")


def save(tab: Tab, name: str, folder: Path, box: tuple[float, float, float, float] | None = None) -> None:
    """Writes what is visible, or a box of it, as WebP, which is a third of the bytes of a PNG."""
    tab.picture(folder / "shot.png")
    with Image.open(folder / "shot.png") as shot:
        part = shot.crop(box) if box else shot
        part.convert("RGB").save(OUT / f"{name}.webp", quality=90, method=6)


if __name__ == "__main__":
    main(*sys.argv[1:])
