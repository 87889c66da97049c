"""The images of one investigation, with masks and activations, by the ids that the agent's code uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmaia.agent.tools.arguments import abbreviate, check_view, count_png_pixels, decode_png
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage, Rendering, draw_frame, render_mask, unpack_mask
from openmaia.core.services import Map, UnitExemplars
from openmaia.runs.records import Did, GivenImage, ImageEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredImage:
    """An image that a tool returned, with what is recorded about it."""

    entry: ImageEntry
    original: EncodedImage


class ImageRegistry:
    """Assigns the ids `image-1`, `image-2`, ... to images, and returns images by their ids."""

    def __init__(self, rendering: Rendering = Rendering.DARKEN) -> None:
        self.entries: dict[str, RegisteredImage] = {}
        self._rendering = rendering

    def add(self, original: EncodedImage, did: Did, **facts: Any) -> RegisteredImage:
        """Registers an image under the next free id. `facts` are further fields of its `ImageEntry`."""
        entry = ImageEntry(id=f"image-{len(self.entries) + 1}", original=original.digest, did=did, **facts)
        self.entries[entry.id] = RegisteredImage(entry=entry, original=original)
        return self.entries[entry.id]

    def restore(self, entries: Sequence[RegisteredImage]) -> None:
        """Registers the images of a recorded tool call under their recorded ids."""
        self.entries.update((image.entry.id, image) for image in entries)

    def get(self, id: object) -> RegisteredImage:
        """Returns the image with an id such as `image-3`. Raises ToolError for an unknown id."""
        image = self.entries.get(id) if isinstance(id, str) else None
        if image is None:
            raise ToolError(f"there is no image {abbreviate(id)}; use the images that the tools returned")
        return image

    def rendered(self, id: object, name: str) -> EncodedImage:
        """Returns an image as it is, or, if `name` is `masked`, with its mask, if it has one, and a white frame around
        the part that the network sees. Raises ToolError for an unknown id.
        """
        image = self.get(id)
        entry, original = image.entry, image.original
        if name != "masked" or entry.mask is None:
            return original
        # Drawn on demand, because most images are never displayed.
        shown = render_mask(original.decoded(), unpack_mask(entry.mask, original.size), self._rendering)
        return EncodedImage.of(draw_frame(shown, entry.seen) if entry.seen else shown, original.sources)

    def check(self, argument: Any) -> int:
        """Checks an argument of `resolve` without decoding any pixels, and returns how many are to be decoded: 0 for a
        registered image.

        Raises ToolError if the argument is not an image, its id is unknown, or it is no PNG of a valid size.
        """
        if not isinstance(argument, dict):
            raise ToolError(f"expected an image, not {type(argument).__name__} ({abbreviate(argument)})")
        fields = cast(dict[str, Any], argument)
        if fields.keys() == {"png"}:
            return count_png_pixels(fields["png"])
        if not {"image"} <= fields.keys() <= {"image", "view"}:
            raise ToolError(f"expected an image, not {abbreviate(fields)}")
        self.get(fields["image"])
        check_view(fields.get("view", ""))
        return 0

    def resolve(self, argument: Any, default: str) -> EncodedImage:
        """Returns the image that is the argument of a tool call: a dict with the id of a registered image, or with the
        bytes of a PNG file (see `values.wire`). `default` is the rendering if the argument names none.

        Raises ToolError as `check` does, or if the PNG is invalid.
        """
        self.check(argument)
        fields = cast(dict[str, Any], argument)
        if "png" in fields:
            return decode_png(fields["png"])
        return self.rendered(fields["image"], check_view(fields.get("view", "")) or default)

    def given(self, argument: dict[str, Any], default: str) -> GivenImage:
        """Returns what is recorded about the argument of a tool call, as `resolve` understands it."""
        if "png" in argument:
            return GivenImage(id="")
        entry, view = self.get(argument["image"]).entry, argument.get("view") or default
        return GivenImage(id=entry.id, is_masked=view == "masked" and entry.mask is not None)


def describe_activation(
    value: float, activations: Map | None, exemplars: UnitExemplars, raw: float | None = None
) -> dict[str, float | bool]:
    """Returns an activation as the agent sees it, with the keys `value`, `percentile` and `z` among the images of the
    dataset, if known, `fired` (whether the activation exceeds the mask threshold anywhere), and `raw` (a logit), if
    given.

    `activations` is the map, (h, w), of which `value` is the maximum, or None.
    """
    described: dict[str, float | bool] = {"value": value}
    if (percentile := exemplars.percentile(value)) is not None:
        described["percentile"] = round(percentile, 1)
    if (z := exemplars.z_score(value)) is not None:
        described["z"] = float(f"{z:.3g}")
    described["fired"] = (value if activations is None else float(activations.max())) > exemplars.threshold
    return described if raw is None else described | {"raw": raw}
