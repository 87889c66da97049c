"""Images as values, hostile data, and masks."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from openmaia.core.images import (
    MAX_PIXELS,
    MAX_WEBP_SIDE,
    EncodedImage,
    compute_mask,
    darken_outside,
    decode,
    draw_frame,
    flatten,
    seen_part,
    upsample,
)
from tests.helpers.images import encoded, huge_png, sample_image

NOISE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def test_pixels_survive_encoding():
    assert np.array_equal(EncodedImage.of(NOISE).pixels, NOISE)


def test_digest_is_that_of_the_decoded_image():
    made = EncodedImage.of(NOISE)
    assert made.digest == EncodedImage(data=made.data).digest


def test_image_longer_than_webp_knows_survives_encoding():
    wide = np.tile(NOISE[:8], (1, 300, 1))
    assert wide.shape[1] > MAX_WEBP_SIDE
    assert np.array_equal(EncodedImage.of(wide).packed().pixels, wide)


def test_digest_ignores_the_encoding():
    other = EncodedImage(data=encoded(Image.fromarray(NOISE), "PNG", compress_level=9))
    assert other.data != EncodedImage.of(NOISE).data
    assert other.digest == EncodedImage.of(NOISE).digest


def test_digest_depends_on_every_pixel():
    changed = NOISE.copy()
    changed[0, 0, 0] ^= 1
    assert EncodedImage.of(changed).digest != EncodedImage.of(NOISE).digest


def test_digest_depends_on_the_shape():
    assert EncodedImage.of(NOISE.reshape(60, 40, 3)).digest != EncodedImage.of(NOISE).digest


def test_sources_are_sorted_and_unique():
    assert EncodedImage.of(NOISE, ["b", "a", "b"]).sources == ("a", "b")


def test_pickled_image_has_no_decoded_pixels():
    made = EncodedImage.of(NOISE, ["a"], recipe="r")
    assert made.digest
    assert made.pixels.any()
    assert len(pickle.dumps(made)) < len(made.data) + 1000
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.digest, again.sources, again.recipe) == (made, made.digest, ("a",), "r")


def test_pixels_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        EncodedImage.of(NOISE).pixels[0, 0, 0] = 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_common_formats_are_decoded(kind: str):
    image = decode(encoded(sample_image(1), kind))
    assert (image.mode, image.size) == ("RGB", sample_image(1).size)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.95])
def test_truncated_image_is_a_value_error_or_whole(kind: str, share: float):
    data = encoded(sample_image(1), kind)
    try:
        image = decode(data[: int(len(data) * share)])
    except ValueError:
        return
    assert np.asarray(image).shape == (72, 96, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_damaged_image_raises_only_value_errors(kind: str):
    data = encoded(sample_image(1), kind)
    random = np.random.default_rng(1)
    refusals = 0
    for _ in range(60):
        broken = bytearray(data)
        for at in random.integers(0, min(len(data), 400), 8):
            broken[at] = random.integers(256)
        try:
            assert np.asarray(decode(bytes(broken))).ndim == 3
        except ValueError:
            refusals += 1
    assert refusals > 0 or kind == "BMP"


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>"])
def test_other_data_are_a_value_error(data: bytes):
    with pytest.raises(ValueError, match="image"):
        decode(data)


def test_huge_image_is_refused_before_decoding():
    with pytest.raises(ValueError, match="pixels"):
        decode(huge_png())


def test_image_above_the_limit_is_refused():
    with pytest.raises(ValueError, match=str(MAX_PIXELS)):
        decode(encoded(Image.new("1", (8001, 8000)), "PNG"))


def test_sixteen_bits_become_eight():
    image = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    assert np.asarray(decode(encoded(image, "PNG")))[0, :, 0].tolist() == [0, 127, 255]


@pytest.mark.parametrize(("format", "type"), [("PNG", np.uint16), ("TIFF", np.uint16), ("PPM", np.int32)])
def test_dark_image_of_sixteen_bits_stays_dark(format: str, type: Any):
    """Its brightest value is below 256, which must not be taken for an image of eight bits."""
    image = Image.fromarray(np.array([[0, 128, 255]], dtype=type))
    assert np.asarray(decode(encoded(image, format))).max() == 0


@pytest.mark.parametrize("type", [np.int32, np.float32])
def test_pixels_without_a_known_range_are_refused(type: Any):
    image = Image.fromarray(np.array([[0, 100, 200]], dtype=type))
    with pytest.raises(ValueError, match="32 bits per pixel.* save it with 8 or 16 bits"):
        decode(encoded(image, "TIFF"))


def test_cmyk_becomes_rgb():
    image = decode(encoded(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG"))
    red, green, blue = np.asarray(image)[2, 2]
    assert red > 200
    assert max(green, blue) < 60


def test_transparency_is_laid_on_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.asarray(flatten(image))[0, 0].tolist() == [255, 255, 255]
    data = encoded(Image.new("RGB", (4, 4), (255, 0, 0)), "PNG", transparency=(255, 0, 0))
    assert np.asarray(decode(data))[0, 0].tolist() == [255, 255, 255]


def test_animation_is_its_first_frame():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.asarray(decode(data))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 7), (14, 14), (14, 18)])
@pytest.mark.parametrize("size", [(224, 224), (224, 300), (33, 47)])
def test_upsampling_is_bilinear_with_half_pixel_centres(shape: tuple[int, int], size: tuple[int, int]):
    small = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    reference = torch.nn.functional.interpolate(torch.from_numpy(small)[None, None], size=size, mode="bilinear")
    assert np.abs(upsample(small, *size) - reference[0, 0].numpy()).max() < 1e-4


@pytest.mark.parametrize("value", [-1.0, 2.5])
def test_upsampled_constant_map_stays_constant(value: float):
    assert np.allclose(upsample(np.full((7, 7), value, np.float32), 224, 224), value, atol=1e-6)


def test_larger_map_is_averaged():
    large = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert upsample(large, 2, 2).tolist() == [[2.5, 4.5], [10.5, 12.5]]


def test_area_outside_the_mask_is_darkened_to_a_quarter():
    mask = np.zeros((40, 60), dtype=np.bool_)
    mask[10:20, 5:15] = True
    darkened = darken_outside(NOISE, mask)
    assert np.array_equal(darkened[mask], NOISE[mask])
    assert np.array_equal(darkened[~mask], NOISE[~mask] // 4)


def test_seen_part_is_none_where_the_whole_image_is_seen():
    assert seen_part((60, 40), (0.0, 0.2, 59.8, 40.0)) is None
    assert seen_part((60, 40), (10.0, 0.0, 50.0, 40.0)) == (10, 0, 50, 40)


def test_frame_lies_inside_the_part_and_changes_nothing_else():
    inside = np.zeros((40, 60), dtype=np.bool_)
    inside[:, 10:50] = True
    inside[1:39, 11:49] = False
    assert np.array_equal(draw_frame(NOISE, (10, 0, 50, 40)), np.where(inside[..., None], 255, NOISE))


def test_mask_covers_the_seen_part_only():
    mask = compute_mask((60, 40), np.ones((2, 2), dtype=np.float32), (10.0, 0.0, 50.0, 40.0), 0.5)
    assert mask is not None
    assert mask[:, 10:50].all()
    assert mask.sum() == 40 * 40


def test_size_is_read_from_any_format():
    made = EncodedImage.of(np.zeros((30, 50, 3), dtype=np.uint8))
    assert made.size == EncodedImage(data=made.png).size == (50, 30)


def test_packed_image_keeps_its_pixels_and_is_encoded_once():
    given = EncodedImage(data=encoded(Image.fromarray(NOISE), "PNG"), sources=("a",), recipe="{}")
    packed = given.packed()
    assert packed.data == EncodedImage.of(NOISE).data
    assert (packed.digest, packed.sources, packed.recipe) == (given.digest, given.sources, given.recipe)
    assert packed.packed() is packed


def test_png_is_encoded_again_only_from_other_formats():
    made = EncodedImage.of(np.full((8, 8, 3), 77, dtype=np.uint8))
    again = EncodedImage(data=made.png)
    assert (again.digest, made.png[:4]) == (made.digest, b"\x89PNG")
    assert again.png is again.data
