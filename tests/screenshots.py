"""Runs configs/demo.yaml and saves screenshots of its report for README and docs: `python -m tests.screenshots [RUN]`.

RUN is the folder of a finished run of that config, which then is not run again. All pictures are drawn scenes, so that the
screenshots may be part of the repository.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from openmaia.reporting.browser import write_report
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.chromium import Tab, browser

OUT = REPOSITORY / "docs/screenshots"


def main(run: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = write_report([Run.open(run or demo(folder))])
        with browser(folder / "profile") as tab:
            tab.resize(1440, 900)
            tab.open(index.as_uri(), "document.body?.dataset.ready === 'texts'")
            save(tab, "report", folder)
            tab.open(tab.run("document.querySelector('.card a').href"))
            save(tab, "unit", folder)


def demo(folder: Path) -> str:
    """Returns the folder of a new run of the demo."""
    places = [f"paths.runs={folder}/runs", f"paths.exemplars={folder}/exemplars"]
    command = [sys.executable, "-m", "openmaia.cli.main", "run", "configs/demo.yaml", *places]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return f"{folder}/runs/demo"


def save(tab: Tab, name: str, folder: Path) -> None:
    """Writes what is visible as WebP, which is a third of the bytes of a PNG."""
    tab.picture(folder / "shot.png")
    with Image.open(folder / "shot.png") as shot:
        shot.convert("RGB").save(OUT / f"{name}.webp", quality=90, method=6)


if __name__ == "__main__":
    main(*sys.argv[1:])
