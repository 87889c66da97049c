"""The tile of a unit on the wall: its four best dataset images as a square, and in a second file the same with the part marked.

A browser decodes whole files, and a wall shows one of the two.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps

from openmaia.core.errors import StoreError
from openmaia.core.images import decode, upsample
from openmaia.core.services import Exemplar
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.stores import RunExemplars
from openmaia.reporting.tables import UnitRow
from openmaia.runs.files import safe
from openmaia.runs.run import Run

TILE_SIDE = 72
"""Of each image, in pixels. A large tile of the wall is 140 wide."""
_IMAGES, _GAP = 4, 2
_VERSION = 3
"""Part of the cache key: a change of what a tile looks like raises it."""
_DARK, _VEIL = (10, 12, 16), 0.3

Shot = tuple[Image.Image, Image.Image | None]
"""A square image, and the part of it that excites the unit in 0 and 255; None without a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The images of one row of the report. They come from the store, or from the record if the store lacks the unit."""

    run: Run
    row: UnitRow
    exemplars: RunExemplars

    @property
    def path(self) -> str:
        """Of the file, relative to report/."""
        return f"{self.row.page.removesuffix('.html')}.webp"

    @property
    def marked_path(self) -> str:
        """Of the file with the parts marked, relative to report/."""
        return f"{self.row.page.removesuffix('.html')}.part.webp"

    @property
    def is_likely(self) -> bool:
        """Whether there is something to look for. The images may lack all the same."""
        return bool(self.row.header) or self._store is not None

    @property
    def made_from(self) -> list[Any]:
        """The cache key; empty on an object store, whose file times are not reliable."""
        root = self._store.files.local if self._store else self.run.investigations.local
        if root is None:
            return []
        unit = self.row.unit
        stem = f"records/{safe(unit.target)}/{safe(unit.layer)}/{unit.index}-{self.row.investigation.replicate}"
        layer = safe(unit.layer)
        names = (f"{layer}.units.parquet", f"{layer}.rows.parquet") if self._store else (f"{stem}.parquet",)
        return [_VERSION, *(path.stat().st_mtime_ns if (path := root / name).exists() else 0 for name in names)]

    @property
    def _store(self) -> ExemplarStore | None:
        return self.exemplars.store if self.row.unit.layer in self.exemplars.layers else None

    def shots(self) -> list[Shot]:
        """Returns what is known of the images."""
        return list(self._stored()) or list(self._recorded())

    def _stored(self) -> Iterator[Shot]:
        if self._store is None:
            return
        try:
            found = self._store.read(self.row.unit)
            shots = [_shot(each, found.threshold) for each in found.of_kind("top")[:_IMAGES]]
        except (StoreError, ValueError):  # an image that cannot be decoded is a ValueError
            return
        yield from shots

    def _recorded(self) -> Iterator[Shot]:
        if not self.row.header:
            return
        try:
            record = self.run.record(self.row.investigation)
            images, entries = record.images, record.top_exemplars[:_IMAGES]
            found = [(images[each.original], each.mask) for each in entries if each.original in images]
            yield from [_square(decode(image.data), mask) for image, mask in found if image.data]
        except (StoreError, ValueError):
            return


def make_tiles(run: Run, rows: Sequence[UnitRow], exemplars: RunExemplars) -> dict[str, Tile]:
    """Returns the tile of each row by the percent-decoded path of its first file."""
    made = (Tile(run=run, row=row, exemplars=exemplars) for row in rows)
    return {tile.path: tile for tile in made}


def draw(shots: Sequence[Shot], *, is_marked: bool) -> bytes:
    """Returns a WebP image of the shots of a tile, with their parts marked or as they are; empty without shots."""
    if not shots:
        return b""
    side = _IMAGES // 2 * TILE_SIDE + _GAP
    sheet = Image.new("RGBA", (side, side))
    for number, (image, part) in enumerate(shots):
        sheet.paste(
            _marked(image, part) if is_marked else image,
            (number % 2 * (TILE_SIDE + _GAP), number // 2 * (TILE_SIDE + _GAP)),
        )
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=70, method=0)
    return buffer.getvalue()


def _shot(exemplar: Exemplar, threshold: float) -> Shot:
    """What the network saw of an exemplar: the part of the image in its box."""
    image = Image.fromarray(exemplar.image.pixels).convert("RGB")
    square = image.resize(
        (TILE_SIDE, TILE_SIDE), Image.Resampling.BILINEAR, box=_inside(exemplar, image.size), reducing_gap=2.0
    )
    if exemplar.map is None:
        return square, None
    return square, _binary(upsample(exemplar.map, TILE_SIDE, TILE_SIDE) > threshold)


def _inside(exemplar: Exemplar, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The box cut to the image, because a box of an imported exemplar may reach over its edge."""
    left, top, right, bottom = exemplar.box
    box = max(left, 0.0), max(top, 0.0), min(right, float(size[0])), min(bottom, float(size[1]))
    return box if box[0] < box[2] and box[1] < box[3] else (0.0, 0.0, float(size[0]), float(size[1]))


def _square(image: Image.Image, mask: bytes | None) -> Shot:
    """The middle of a recorded image. `mask` has one bit per pixel, packed row by row."""
    width, height = image.size
    square = ImageOps.fit(image.convert("RGB"), (TILE_SIDE, TILE_SIDE), Image.Resampling.BILINEAR)
    if mask is None or len(mask) != height * ((width + 7) // 8):
        return square, None
    whole = ImageOps.fit(
        Image.frombytes("1", image.size, mask).convert("L"), (TILE_SIDE, TILE_SIDE), Image.Resampling.BOX
    )
    return square, _binary(np.asarray(whole) > 127)


def _binary(mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> Image.Image:
    return Image.fromarray(mask.astype(np.uint8) * 255)


def _marked(image: Image.Image, part: Image.Image | None) -> Image.Image:
    """Veils what does not excite the unit, and draws a white line in a dark casing around what does: it shows on every
    image, and means no verdict.
    """
    if part is None:
        return image
    marked = Image.composite(image, Image.blend(image, Image.new("RGB", image.size, _DARK), _VEIL), part)
    for width, colour in ((5, _DARK), (3, (255, 255, 255))):
        marked.paste(colour, mask=ImageChops.subtract(part.filter(ImageFilter.MaxFilter(width)), part))
    return marked
