"""Which pictures of the Debian packages are used, and how they are told from drawings.

By folder: only the folders named here are read, and of Tux Paint's stamps none below a folder of drawings, symbols or
faces. By measure: a stamp whose neighbouring pixels are mostly of exactly one colour is drawn, not photographed.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
from PIL import Image

from openmaia.images import Pixels, decode
from openmaia.pictures import captions, pattern, rcc
from openmaia.pictures.index import Kind

MIN_SIDE = 48
"""A cut-out whose longer side is shorter has too few pixels to be recognised once it is enlarged."""

MAX_FLAT = 0.5
"""Share of equal neighbours above which a cut-out counts as drawn: photographs lie near 0.05, road signs above 0.75."""

MIN_VISIBLE = 0.05
"""Share of opaque pixels below which a cut-out is a haze: glows, ghosts, the glass of water."""

MAX_BYTES = 64 << 20

_DRAWN = frozenset(
    {"cartoon", "symbols", "flags", "faces", "body_parts", "hats", "easter", "hanukkah", "newyears", "plastic"}
)
_DRAWN_STAMPS = frozenset({"seasonal/christmas/Santa", "seasonal/christmas/candy_cane", "seasonal/christmas/tree"})

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
"""Folder to (category, caption for what has a name of its own; "" where the file is named for what it shows)."""

_GCOMPRIS_FISH = {"manta": "A manta ray.", "shark1": "A shark.", "butfish": "A butterflyfish.", "teeth": "A piranha."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """origin: path inside the package, by which its licence is looked up. data: the bytes to be written."""

    kind: Kind
    category: str
    name: str
    suffix: str
    caption: str
    package: str
    origin: str
    data: bytes


def stamps(share: Path) -> Iterator[Found]:
    """Tux Paint's stamps: cut-outs with a caption in many languages beside each, English in the first line."""
    root = share / "tuxpaint" / "stamps"
    for path in sorted(root.rglob("*.png")):
        relative = path.relative_to(root)
        mirrored = path.stem.endswith(("_mirror", "_flip", "_mirror_flip"))
        if mirrored or _DRAWN & set(relative.parts) or relative.with_suffix("").as_posix() in _DRAWN_STAMPS:
            continue
        data = _cutout(path.read_bytes())
        if data is not None:
            yield Found(
                kind="cutout", category=relative.parent.as_posix(), name=path.stem, suffix=".png", data=data,
                caption=_first_line(path.with_suffix(".txt")) or captions.photo(path.stem),
                package="tuxpaint-stamps-default", origin=f"stamps/{relative.as_posix()}",
            )  # fmt: skip


def gcompris(share: Path) -> Iterator[Found]:
    """GCompris: photographs and, in its game of clicking fish, cut-outs of fish and of planets."""
    activities = {folder.split("/")[0] for folder in _GCOMPRIS_PHOTOS} | {"solar_system"}
    for activity in sorted(activities):
        archive = share / "gcompris-qt" / "rcc" / f"{activity}.rcc"
        if not archive.is_file() or archive.stat().st_size > MAX_BYTES:
            continue
        for path, data in rcc.read(archive.read_bytes(), lambda path: path.endswith((".webp", ".jpg", ".png"))):
            found = _gcompris_picture(path.removeprefix("gcompris/"), data)
            if found is not None:
                yield found


def backgrounds(share: Path) -> Iterator[Found]:
    """MATE's photographs of nature; its other folders are drawn."""
    for path in sorted((share / "backgrounds" / "mate" / "nature").glob("*.jpg")):
        yield Found(
            kind="photo", category="nature", name=path.stem, suffix=path.suffix, caption=captions.photo(path.stem),
            package="mate-backgrounds", origin=f"nature/{path.name}", data=path.read_bytes(),
        )  # fmt: skip


def patterns(share: Path) -> Iterator[Found]:
    """GIMP's tileable patterns; those of its folder Legacy are drawn."""
    for root in sorted((share / "gimp").glob("*/patterns")):
        for path in sorted(root.rglob("*.pat")):
            folder = path.parent.relative_to(root).as_posix()
            if folder == "Legacy" or path.stat().st_size > MAX_BYTES:
                continue
            yield Found(
                kind="texture", category=folder, name=path.stem, suffix=".png", caption=captions.texture(path.stem),
                package="gimp-data", origin=f"patterns/{folder}/{path.name}",
                data=_png(pattern.decode(path.read_bytes())),
            )  # fmt: skip


SOURCES: dict[str, Callable[[Path], Iterator[Found]]] = {
    "tuxpaint-stamps-default": stamps,
    "gcompris-qt-data": gcompris,
    "mate-backgrounds": backgrounds,
    "gimp-data": patterns,
}
"""By Debian package: what finds its pictures below its usr/share."""


def _planet(stem: str) -> str:
    return captions.photo(stem) if stem == "sun" else captions.named(stem, "{}, a planet")


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            line = file.readline(1000).decode("utf-8", "replace")
    except OSError:
        return ""
    return " ".join(line.split())


def _gcompris_picture(path: str, data: bytes) -> Found | None:
    inside = PurePosixPath(path)
    folder = inside.parent.as_posix().removeprefix("src/activities/")
    planet = folder == "solar_system/resource"
    fish = folder == "clickgame/resource" and not inside.stem.startswith("sea")
    kind: Kind = "photo"
    if planet or fish:
        kind, category = "cutout", "space/planets" if planet else "animals/fish"
        text = _planet(inside.stem) if planet else _GCOMPRIS_FISH.get(inside.stem, "A fish.")
        # The game's sprites are strips of frames of one fish: two, and eight for the piranha's bite.
        frames = (8 if inside.stem == "teeth" else 2) if fish else 1
        # Lossy compression flattens these photographs, so that the measure would take them for drawings.
        cut = _cutout(data, frames=frames, max_flat=1.0)
        if cut is None:
            return None
        data = cut
    elif folder in _GCOMPRIS_PHOTOS:
        category, form = _GCOMPRIS_PHOTOS[folder]
        text = captions.named(inside.stem, form) if form else captions.photo(inside.stem)
    else:
        return None
    return Found(
        kind=kind, category=category, name=inside.stem, suffix=".png" if kind == "cutout" else inside.suffix,
        caption=text, package="gcompris-qt-data", origin=path, data=data,
    )  # fmt: skip


def _cutout(data: bytes, frames: int = 1, max_flat: float = MAX_FLAT) -> bytes | None:
    """Its first frame cropped to what is visible, as PNG; None where it is unusable or drawn."""
    decode(data)  # refuses bombs and damage
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    image = image.crop((0, 0, image.width // frames, image.height))
    box = image.getchannel("A").point([0] * 9 + [255] * 247).getbbox()
    if box is None:
        return None
    image = image.crop(box)
    pixels = np.asarray(image)
    opaque = pixels[..., 3] > 250
    if max(image.size) < MIN_SIDE or opaque.mean() < MIN_VISIBLE or _flatness(pixels[..., :3], opaque) > max_flat:
        return None
    return _png(image)


def _flatness(colours: Pixels, opaque: npt.NDArray[np.bool_]) -> float:
    """Share of horizontally adjacent opaque pixels of exactly the same colour."""
    both = opaque[:, 1:] & opaque[:, :-1]
    same = (colours[:, 1:] == colours[:, :-1]).all(axis=-1)
    return float(same[both].mean()) if both.any() else 1.0


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
