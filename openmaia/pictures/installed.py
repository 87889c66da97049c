"""The few natural pictures that pip packages ship, found without importing the packages."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from openmaia.pictures.index import Kind
from openmaia.pictures.sources import Found

_PICTURES: dict[tuple[str, str], dict[str, tuple[Kind, str, str]]] = {
    ("skimage", "data"): {
        "astronaut.png": ("photo", "people", "An astronaut."),
        "chelsea.png": ("photo", "animals", "A tabby cat."),
        "coffee.png": ("photo", "household", "A cup of coffee."),
        "coins.png": ("photo", "household", "Coins."),
        "moon.png": ("photo", "space", "The moon."),
        "hubble_deep_field.jpg": ("photo", "space", "Galaxies."),
        "motorcycle_left.png": ("photo", "vehicles", "A motorcycle."),
        "rocket.jpg": ("photo", "vehicles", "A rocket."),
        "brick.png": ("texture", "stone", "A texture of brick."),
        "grass.png": ("texture", "plant", "A texture of grass."),
        "gravel.png": ("texture", "stone", "A texture of gravel."),
    },
    ("sklearn", "datasets/images"): {
        "china.jpg": ("photo", "monuments", "A Chinese temple."),
        "flower.jpg": ("photo", "plants", "A flower."),
    },
}


def pictures() -> Iterator[Found]:
    for (package, folder), files in _PICTURES.items():
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            for name, (kind, category, caption) in files.items():
                path = Path(place) / folder / name
                if path.is_file():
                    yield Found(
                        kind=kind, category=category, name=path.stem, suffix=path.suffix, caption=caption,
                        package=package, origin=f"{folder}/{name}", data=path.read_bytes(),
                    )  # fmt: skip
