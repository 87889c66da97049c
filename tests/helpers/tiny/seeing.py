"""The processor of a tiny model that takes images and videos in patches."""

from typing import Any


def processor(
    kind: Any,
    images: Any,
    videos: Any,
    tokenizer: Any,
    template: str,
    *,
    patch: int,
    merged: int,
    area: tuple[int, int],
) -> Any:
    """Args:
    kind: The class of the processor; `images` and `videos` those of its parts.
    patch: Pixels of a side of a patch.
    merged: Patches of a side that become one token.
    area: The smallest and the largest area of what it reads, in pixels.
    """
    sizes = {"patch_size": patch, "temporal_patch_size": 2, "merge_size": merged}
    limits = dict(zip(("shortest_edge", "longest_edge"), area, strict=True))
    return kind(images(size=limits, **sizes), tokenizer, videos(size=limits, **sizes), chat_template=template)
