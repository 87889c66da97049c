"""The wire format: what goes in comes out, and nothing malformed does."""

import json
import pickle
import struct

import pytest

from openmaia.sandbox.frames import LENGTH, MAGIC, MAX_DEPTH, PREFIX, Decoder, FrameError, Json, decode, encode

LIMIT = 1 << 20


def roundtrip(message: Json, piece: int = 1 << 16) -> Json:
    decoder, stream = Decoder(LIMIT), b"".join(encode(message, LIMIT))
    for start in range(0, len(stream), piece):
        assert decoder.next() == (False, None)
        decoder.feed(stream[start : start + piece])
    complete, result = decoder.next()
    assert complete
    return result


def test_values_survive_the_round_trip():
    message: Json = {"a": [None, True, -3, 2.5, "ü\U0001f600", b"\x00\xff", {"b": b""}], "c": "x" * 1000}
    assert roundtrip(message) == message


def test_a_frame_may_arrive_byte_by_byte():
    assert roundtrip([b"abc", "d"], piece=1) == [b"abc", "d"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 300, b"x" * (LIMIT + 1), "x" * (LIMIT + 1)])
def test_what_cannot_be_sent_is_refused_by_the_sender(value: Json):
    with pytest.raises(FrameError):
        encode(value, LIMIT)


def test_a_dictionary_cannot_pose_as_a_blob():
    with pytest.raises(TypeError):
        encode({"$blob": 0}, LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "1e999", "-Infinity", '"\\ud800"', '{"\\udc00": 1}', "[" * 5000, "9" * 200, "9" * 10_000, '{"$blob": 1}',
        '{"$blob": true}', '{"$blob": 0, "x": 1}', '[{"$blob": 0}, {"$blob": 0}]', '{"$blob": -1}', "1 2", "", "'a'",
        "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2),
    ],
)  # fmt: skip
def test_malformed_text_is_refused(text: str):
    with pytest.raises(FrameError):
        decode(text.encode(), [b"blob"])


def test_a_blob_that_nothing_refers_to_is_refused():
    with pytest.raises(FrameError):
        decode(b"1", [b"blob"])


@pytest.mark.parametrize(
    "head", [b"\x80\x04\x95" + bytes(20), PREFIX.pack(MAGIC, 1 << 30, 0), PREFIX.pack(MAGIC, 2, 1 << 20)]
)
def test_a_bad_head_is_refused_before_anything_is_awaited(head: bytes):
    decoder = Decoder(LIMIT)
    decoder.feed(head)
    with pytest.raises(FrameError):
        decoder.next()


def test_announced_sizes_are_checked_before_the_bytes_arrive():
    decoder = Decoder(LIMIT)
    decoder.feed(PREFIX.pack(MAGIC, 2, 2) + LENGTH.pack(1 << 63) + LENGTH.pack(1 << 63))
    with pytest.raises(FrameError):
        decoder.next()


def test_a_pickle_is_never_loaded():
    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('loaded')",)

    with pytest.raises(FrameError):
        decode(pickle.dumps(Bomb()), [])
    assert decode(json.dumps({"$blob": 0}).encode(), [pickle.dumps(Bomb())]) == pickle.dumps(Bomb())
    assert struct.calcsize("!4sII") == PREFIX.size
