"""Pictures as values, reading hostile bytes, and masks."""

import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from openmaia.images import MAX_PIXELS, Picture, darken_outside, decode, flatten, upsample
from tests.pictures.making import huge_png, picture

NOISE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def test_pixels_survive_exactly():
    assert np.array_equal(Picture.of(NOISE).pixels, NOISE)


def test_the_digest_is_of_the_pixels_and_not_of_the_encoding():
    other = Picture(data=encoded(Image.fromarray(NOISE), "PNG", compress_level=9))
    assert other.data != Picture.of(NOISE).data
    assert other.digest == Picture.of(NOISE).digest


def test_one_other_pixel_gives_another_digest():
    changed = NOISE.copy()
    changed[0, 0, 0] ^= 1
    assert Picture.of(changed).digest != Picture.of(NOISE).digest


def test_equal_bytes_of_another_shape_give_another_digest():
    assert Picture.of(NOISE.reshape(60, 40, 3)).digest != Picture.of(NOISE).digest


def test_sources_are_sorted_and_named_once():
    assert Picture.of(NOISE, ["b", "a", "b"]).sources == ("a", "b")


def test_a_picture_travels_without_its_decoded_pixels():
    made = Picture.of(NOISE, ["a"], recipe="r")
    assert made.digest
    assert made.pixels.any()
    assert len(pickle.dumps(made)) < len(made.data) + 1000
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.digest, again.sources, again.recipe) == (made, made.digest, ("a",), "r")


def test_pixels_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="read-only"):
        Picture.of(NOISE).pixels[0, 0, 0] = 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_common_formats_are_read(kind: str):
    image = decode(encoded(picture(1), kind))
    assert (image.mode, image.size) == ("RGB", picture(1).size)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.95])
def test_a_truncated_picture_is_a_value_error_or_a_whole_picture(kind: str, share: float):
    data = encoded(picture(1), kind)
    try:
        image = decode(data[: int(len(data) * share)])
    except ValueError:
        return
    assert np.asarray(image).shape == (72, 96, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_flipped_bytes_never_raise_anything_but_value_errors(kind: str):
    data = encoded(picture(1), kind)
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


@pytest.mark.parametrize("data", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>"])
def test_what_is_no_picture_is_a_value_error(data: bytes):
    with pytest.raises(ValueError, match="picture"):
        decode(data)


def test_a_huge_picture_is_refused_before_it_is_decoded():
    with pytest.raises(ValueError, match="pixels"):
        decode(huge_png())


def test_a_picture_of_more_pixels_than_any_camera_makes_is_refused():
    with pytest.raises(ValueError, match=str(MAX_PIXELS)):
        decode(encoded(Image.new("1", (8001, 8000)), "PNG"))


def test_sixteen_bits_become_eight():
    image = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    assert np.asarray(decode(encoded(image, "PNG")))[0, :, 0].tolist() == [0, 127, 255]


def test_cmyk_becomes_rgb():
    image = decode(encoded(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG"))
    red, green, blue = np.asarray(image)[2, 2]
    assert red > 200
    assert max(green, blue) < 60


def test_transparency_lies_on_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.asarray(flatten(image))[0, 0].tolist() == [255, 255, 255]


def test_of_an_animation_the_first_frame_is_read():
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
def test_a_constant_map_stays_constant_up_to_the_border(value: float):
    assert np.allclose(upsample(np.full((7, 7), value, np.float32), 224, 224), value, atol=1e-6)


def test_a_map_larger_than_the_picture_is_averaged():
    large = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert upsample(large, 2, 2).tolist() == [[2.5, 4.5], [10.5, 12.5]]


def test_outside_the_mask_a_quarter_of_the_light_is_left():
    mask = np.zeros((40, 60), dtype=np.bool_)
    mask[10:20, 5:15] = True
    darkened = darken_outside(NOISE, mask)
    assert np.array_equal(darkened[mask], NOISE[mask])
    assert np.array_equal(darkened[~mask], NOISE[~mask] // 4)


def test_the_size_is_read_without_decoding_whatever_the_format():
    made = Picture.of(np.zeros((30, 50, 3), dtype=np.uint8))
    assert made.size == made.packed().size == (50, 30)


def test_a_png_is_handed_out_as_it_is_and_others_are_encoded():
    made = Picture.of(np.full((8, 8, 3), 77, dtype=np.uint8))
    assert made.png is made.data
    assert Picture(data=made.packed().png).digest == made.digest
