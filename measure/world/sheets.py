"""Draws the contact sheets of the documentation: `python -m measure.world.sheets`."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from openmaia.core.services import Generation
from openmaia.offline.scenes.drawing import draw
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "docs/concepts"
GAP = 4
PROMPTS = (
    "two white boats with striped sails on the sea at dusk",
    "a red house beside a tree in the snow at night",
    "three yellow fish and a turtle under water",
    "a dotted blue cup on a table in a room",
    "a black cat and a lamp in a room at night",
    "a hot-air balloon in the sky in the morning",
    "two cacti and a big rock in the desert at dusk",
    "a green car in a street in the rain",
    "an owl on a tree in a forest at night",
    "a rocket in outer space",
    "a sheep behind a tree in a meadow",
    "an umbrella and a ball on the beach",
    "a purple butterfly in front of flowers in a meadow",
    "a bus in the mountains, cloudy",
    "a guitar on a chair in a room, pencil drawing",
    "a lighthouse on the beach in a storm",
    "red and white checks",
    "a blue star on a striped orange background",
)


def sheet(prompts: Sequence[str], size: int, columns: int) -> Image.Image:
    """Returns the pictures of the prompts in rows, each with sides of `size` pixels."""
    rows = [prompts[at : at + columns] for at in range(0, len(prompts), columns)]
    side = size + GAP
    found = Image.new("RGB", (side * columns - GAP, side * len(rows) - GAP), "white")
    for y, row in enumerate(rows):
        for x, prompt in enumerate(row):
            made = draw(Generation(prompt=prompt, seed=1, split="explore"), size)
            if made.missing_terms:
                raise ValueError(f"{prompt}: {made.missing_terms} cannot be drawn")
            found.paste(Image.fromarray(made.image.pixels), (x * side, y * side))
    return found


if __name__ == "__main__":
    sheet(PROMPTS, 224, 6).save(Path(FOLDER, "scenes-224.webp"), quality=90)
    sheet(PROMPTS, 96, 9).save(Path(FOLDER, "scenes-96.webp"), quality=90)
