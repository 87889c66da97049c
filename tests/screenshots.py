"""Draws pictures, runs configs/closed-form.yaml on them, and saves screenshots of its report: `python -m tests.screenshots`.

All pictures are drawn by this file, so that the screenshots may be part of the repository; the packaged ones may not.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from openmaia.reporting.browser import write_report
from openmaia.runs.run import Run
from tests.conftest import REPOSITORY
from tests.helpers.chromium import browser

OUT = REPOSITORY / ".github"
COUNT, SIDE = 400, 224
COLOURS = ("#d62728", "#2ca02c", "#1f5fd6", "#f2c318", "#8e44ad", "#e67e22", "#5d4037", "#111111", "#f4f4f4", "#16a085")
SCREENS = {"report": (1440, 900), "report-1024": (1024, 900), "report-390": (390, 844)}


def draw(number: int) -> Image.Image:
    """A picture of a few shapes and stripes on a shaded ground."""
    random = np.random.default_rng(number)
    ground = np.linspace(random.integers(40, 120), random.integers(130, 230), SIDE)[:, None, None]
    pixels = np.broadcast_to(ground * random.uniform(0.6, 1.1, 3), (SIDE, SIDE, 3)).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    pen = ImageDraw.Draw(image)
    for _ in range(random.integers(1, 4)):
        colour, side = COLOURS[random.integers(len(COLOURS))], int(random.integers(50, 130))
        left, top = (int(place) for place in random.integers(0, SIDE - side, 2))
        box = (left, top, left + side, top + side)
        match random.integers(5):
            case 0:
                pen.ellipse(box, fill=colour)
            case 1:
                pen.rectangle(box, fill=colour)
            case 2:
                pen.polygon([(left + side // 2, top), (left, top + side), (left + side, top + side)], fill=colour)
            case 3:
                for at in range(0, side, 14):
                    pen.rectangle((left, top + at, left + side, top + at + 6), fill=colour)
            case _:
                for at in range(0, side, 14):
                    pen.rectangle((left + at, top, left + at + 6, top + side), fill=colour)
    return image


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        for number in range(COUNT):
            draw(number).save(folder / f"pictures/{number}.png")
        places = [f"paths.runs={folder}/runs", f"paths.exemplars={folder}/exemplars"]
        pictures = [
            "pictures.kind=folder",
            f"pictures.folder={folder}/pictures",
            "generator.parts=pictures",
            "editor.parts=pictures",
        ]
        command = [sys.executable, "-m", "openmaia.cli.main", "run", "configs/closed-form.yaml", *places, *pictures]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        index = write_report([Run.open(f"{folder}/runs/closed-form")])
        with browser(folder / "profile") as tab:
            for screen, size in SCREENS.items():
                tab.resize(*size)
                tab.open(index.as_uri(), "document.body?.dataset.ready === 'texts'")
                tab.picture(OUT / f"{screen}.png")
            unit = tab.run("document.querySelector('.card a').href")
            tab.resize(1440, 1000)
            tab.open(unit)
            tab.picture(OUT / "report-unit.png")


if __name__ == "__main__":
    main()
