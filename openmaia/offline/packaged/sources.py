"""Selects the natural images of Debian and pip packages and leaves out drawings.

Of each package, only the folders that this module names are read. Of Tux Paint's stamps, the folders with drawings,
symbols or faces are left out. A stamp counts as drawn if most neighbouring pixels have exactly the same colour.
"""

import importlib.util
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.core.images import Pixels, decode
from openmaia.datasets.index import ImageKind
from openmaia.offline.packaged import captions
from openmaia.offline.packaged.formats import read_pattern, read_resources

# Smallest longer side of a cut-out in pixels.
_MIN_SIDE = 48
# Largest share of equal neighbouring pixels in a cut-out. Photographs have a share of about 0.05, road signs of more
# than 0.75.
_MAX_FLAT = 0.5
# Smallest share of opaque pixels in a cut-out, which excludes glows, ghosts and glass.
_MIN_VISIBLE = 0.05

_DRAWN = frozenset(
    {"cartoon", "symbols", "flags", "faces", "body_parts", "hats", "easter", "hanukkah", "newyears", "plastic"}
)
_DRAWN_STAMPS = frozenset({"seasonal/christmas/Santa", "seasonal/christmas/candy_cane", "seasonal/christmas/tree"})

# By folder: category, and a template of captions, in which `{}` stands for the file name. Without a template the
# caption is made from the file name alone (see `captions.photo`).
_GCOMPRIS_PHOTOS = {
    "categorization/resource/images/fishes": ("animals/fish", ""),
    "categorization/resource/images/tools": ("tools", ""),
    "categorization/resource/images/renewable": ("energy", ""),
    "categorization/resource/images/monuments": ("monuments", "{}, a monument"),
    "categorization/resource/images/others": ("household", ""),
    "clickgame/resource": ("underwater", "The bottom of the sea"),
    "erase/resource": ("animals", ""),
    "explore_farm_animals/resource/animals": ("animals/farm", ""),
    "explore_world_animals/resource/animals": ("animals/world", ""),
    "explore_world_music/resource/music": ("music", "Music from {}"),
    **{
        f"explore_monuments/resource/{place}": ("monuments", "{}, a monument")
        for place in ("usa", "egypt", "india", "france", "germany", "wonders")
    },
}

_GCOMPRIS_FISH = {"manta": "A manta ray.", "shark1": "A shark.", "butfish": "A butterflyfish.", "teeth": "A piranha."}

# Kind, category and caption, by package and folder.
_INSTALLED: dict[tuple[str, str], dict[str, tuple[ImageKind, str, str]]] = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedImage:
    """A natural image of a Debian or pip package."""

    kind: ImageKind
    category: str
    """The topic, such as "animals/fish". The file is written into a folder of this name."""
    name: str
    """The file name without suffix."""
    suffix: str
    caption: str
    package: str
    data: bytes


def stamps(share: Path) -> Iterator[PackagedImage]:
    """Yields Tux Paint's stamps, which are cut-outs. The first line of a stamp's text file is its English caption."""
    root = share / "tuxpaint" / "stamps"
    for path in sorted(root.rglob("*.png")):
        relative = path.relative_to(root)
        mirrored = path.stem.endswith(("_mirror", "_flip", "_mirror_flip"))
        if mirrored or _DRAWN & set(relative.parts) or relative.with_suffix("").as_posix() in _DRAWN_STAMPS:
            continue
        data = _cutout(path.read_bytes())
        if data is not None:
            yield PackagedImage(
                kind="cutout", category=relative.parent.as_posix(), name=path.stem, suffix=".png", data=data,
                caption=_first_line(path.with_suffix(".txt")) or captions.photo(path.stem),
                package="tuxpaint-stamps-default",
            )  # fmt: skip


def gcompris(share: Path) -> Iterator[PackagedImage]:
    """Yields the photographs of GCompris (learning games), and its cut-outs of fish and planets."""
    activities = {folder.split("/")[0] for folder in _GCOMPRIS_PHOTOS} | {"solar_system"}
    for activity in sorted(activities):
        archive = share / "gcompris-qt" / "rcc" / f"{activity}.rcc"
        if archive.is_file():
            for path, data in read_resources(archive.read_bytes(), (".webp", ".jpg", ".png")):
                image = _gcompris_image(PurePosixPath(path.removeprefix("gcompris/")), data)
                if image is not None:
                    yield image


def backgrounds(share: Path) -> Iterator[PackagedImage]:
    """Yields the nature photographs among the desktop backgrounds of MATE. Its other backgrounds are drawings."""
    for path in sorted((share / "backgrounds" / "mate" / "nature").glob("*.jpg")):
        yield PackagedImage(
            kind="photo", category="nature", name=path.stem, suffix=path.suffix, caption=captions.photo(path.stem),
            package="mate-backgrounds", data=path.read_bytes(),
        )  # fmt: skip


def patterns(share: Path) -> Iterator[PackagedImage]:
    """Yields GIMP's tileable patterns, except those in the folder Legacy, which are drawings."""
    for root in sorted((share / "gimp").glob("*/patterns")):
        for path in sorted(root.rglob("*.pat")):
            folder = path.parent.relative_to(root).as_posix()
            if folder != "Legacy":
                yield PackagedImage(
                    kind="texture", category=folder, name=path.stem, suffix=".png", package="gimp-data",
                    caption=captions.texture(path.stem), data=_png(read_pattern(path.read_bytes())),
                )  # fmt: skip


SOURCES: dict[str, Callable[[Path], Iterator[PackagedImage]]] = {
    "tuxpaint-stamps-default": stamps,
    "gcompris-qt-data": gcompris,
    "mate-backgrounds": backgrounds,
    "gimp-data": patterns,
}
"""By Debian package: yields the images in its folder usr/share."""


def installed() -> Iterator[PackagedImage]:
    """Yields the natural images of installed pip packages, without importing the packages."""
    for (package, folder), files in _INSTALLED.items():
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            for name, (kind, category, caption) in files.items():
                path = Path(place) / folder / name
                if path.is_file():
                    yield PackagedImage(
                        kind=kind, category=category, name=path.stem, suffix=path.suffix, caption=caption,
                        package=package, data=path.read_bytes(),
                    )  # fmt: skip


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    return " ".join(path.read_bytes()[:1000].split(b"\n")[0].decode("utf-8", "replace").split())


def _gcompris_image(path: PurePosixPath, data: bytes) -> PackagedImage | None:
    folder = path.parent.as_posix().removeprefix("src/activities/")
    kind: ImageKind = "photo"
    if folder == "solar_system/resource":
        kind, category = "cutout", "space/planets"
        caption = captions.photo("sun") if path.stem == "sun" else captions.named(path.stem, "{}, a planet")
        cutout = _cutout(data, max_flat=1.0)
    elif folder == "clickgame/resource" and not path.stem.startswith("sea"):
        kind, category, caption = "cutout", "animals/fish", _GCOMPRIS_FISH.get(path.stem, "A fish.")
        # The sprites are strips of frames of one fish: two, and eight for the bite of the piranha.
        cutout = _cutout(data, frames=8 if path.stem == "teeth" else 2, max_flat=1.0)
    elif folder in _GCOMPRIS_PHOTOS:
        category, form = _GCOMPRIS_PHOTOS[folder]
        caption, cutout = captions.named(path.stem, form) if form else captions.photo(path.stem), data
    else:
        return None
    if cutout is None:
        return None
    return PackagedImage(
        kind=kind, category=category, name=path.stem, suffix=".png" if kind == "cutout" else path.suffix,
        caption=caption, package="gcompris-qt-data", data=cutout,
    )  # fmt: skip


def _cutout(data: bytes, frames: int = 1, max_flat: float = _MAX_FLAT) -> bytes | None:
    # The first of `frames` frames of equal width, cropped to its visible part. `max_flat` of 1 accepts all images, such
    # as photographs in which lossy compression has made neighbouring pixels equal.
    decode(data)  # raises ValueError for a damaged file
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    image = image.crop((0, 0, image.width // frames, image.height))
    box = image.getchannel("A").point([0] * 9 + [255] * 247).getbbox()
    if box is None:
        return None
    image = image.crop(box)
    pixels = np.asarray(image)
    opaque = pixels[..., 3] > 250
    if max(image.size) < _MIN_SIDE or opaque.mean() < _MIN_VISIBLE or _flatness(pixels[..., :3], opaque) > max_flat:
        return None
    return _png(image)


def _flatness(colours: Pixels, opaque: npt.NDArray[np.bool_]) -> float:
    # The share of horizontally adjacent opaque pixels of exactly the same colour; 1 without pairs.
    both = opaque[:, 1:] & opaque[:, :-1]
    same = (colours[:, 1:] == colours[:, :-1]).all(axis=-1)
    return float(same[both].mean()) if both.any() else 1.0


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
