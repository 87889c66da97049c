"""Small files that would take hours are refused, and files that only look like them are read."""

import io

import numpy as np
import pytest
from PIL import Image

from openmaia.datasets.reading import UnusableImage, read

PIXELS = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)


def file(format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, format, **options)
    return buffer.getvalue()


def scans(count: int) -> bytes:
    data = file("JPEG", progressive=True)
    end = data.rindex(b"\xff\xd9")
    last = data[data.rindex(b"\xff\xc4") : end]
    return data[:end] + last * count + data[end:]


def test_jpeg_of_more_scans_than_programs_write_is_unusable():
    with pytest.raises(UnusableImage, match="more than 100 scans"):
        read(scans(100), "a")
    assert read(scans(50), "a").image.size == (120, 90)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}, {"comment": b"\xff\xda" * 500}]
)
def test_what_looks_like_scans_is_none(options: dict[str, object]):
    data = file("JPEG", quality=95, **options) + b"\xff\xda" * 500
    assert read(data, "a").image.size == (120, 90), "a film may follow the image"
