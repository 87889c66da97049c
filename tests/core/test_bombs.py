"""Small files that would take hours are refused, and files that only look like them are read."""

import io
import time

import numpy as np
import pytest
from PIL import Image

from openmaia.core.bombs import has_many_scans
from openmaia.core.images import decode
from openmaia.datasets.reading import UnusableImage, read

PIXELS = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)


def file(format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, format, **options)
    return buffer.getvalue()


def scans(count: int, before: bytes = b"") -> bytes:
    data = file("JPEG", progressive=True)
    end = data.rindex(b"\xff\xd9")
    last = before + data[data.rindex(b"\xff\xc4") : end]
    return data[:end] + last * count + data[end:]


def scans_of_two_pictures(count: int) -> bytes:
    buffer, image = io.BytesIO(), Image.fromarray(PIXELS)
    image.save(buffer, "MPO", save_all=True, append_images=[image], progressive=True)
    data = buffer.getvalue()
    end = data.index(b"\xff\xd9\xff\xd8")
    return data[:end] + data[data.rindex(b"\xff\xc4", 0, end) : end] * count + data[end:]


@pytest.mark.parametrize(
    "data",
    [scans_of_two_pictures(100), scans(100, b"\xff\x01")],
    ids=["several pictures", "marker without a length"],
)
def test_scans_are_counted_behind_another_format_and_behind_a_marker_without_length(data: bytes):
    with pytest.raises(UnusableImage, match="more than 100 scans"):
        read(data, "a")
    with pytest.raises(ValueError, match="more than 100 scans"):
        decode(data)


def test_several_pictures_of_a_camera_are_read():
    assert read(scans_of_two_pictures(0), "a").image.size == (120, 90)


def test_fill_bytes_take_no_quadratic_time():
    data = file("JPEG")
    end, began = data.rindex(b"\xff\xd9"), time.process_time()
    assert not has_many_scans(data[:end] + b"\xff" * 2_000_000 + b"\0" + data[end:])
    assert time.process_time() - began < 5


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
