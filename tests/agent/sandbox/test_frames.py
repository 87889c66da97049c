"""The wire format: what goes in comes out, and nothing malformed does."""

import json
import pickle
import struct

import pytest

from openmaia.agent.sandbox.frames import (
    MAGIC,
    MAX_DEPTH,
    MAX_VALUES,
    PREFIX,
    Decoder,
    FrameError,
    Json,
    decode,
    encode,
)

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


def test_frame_may_arrive_byte_by_byte():
    assert roundtrip([b"abc", "d"], piece=1) == [b"abc", "d"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 300, b"x" * (LIMIT + 1), "x" * (LIMIT + 1)])
def test_sender_refuses_unsendable_values(value: Json):
    with pytest.raises(FrameError):
        encode(value, LIMIT)


@pytest.mark.parametrize("value", ["a\ud83d", ["\udc00\ud800"], {"\ud800": 1}])
def test_half_characters_are_named(value: Json):
    with pytest.raises(FrameError, match="is half a character"):
        encode(value, LIMIT)


def test_number_of_values_is_bounded_before_they_are_made():
    many = "[" + "[]," * MAX_VALUES + "0]"
    with pytest.raises(FrameError, match="values"):
        decode(many.encode(), b"")
    with pytest.raises(FrameError, match="values"):
        encode([0 for _ in range(MAX_VALUES + 1)], 8 << 20)


def test_dictionary_cannot_pose_as_a_blob():
    with pytest.raises(TypeError):
        encode({"$blob": 0}, LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "1e999", "-Infinity", '"\\ud800"', '{"\\udc00": 1}', "[" * 5000, "9" * 200, "9" * 10_000, '{"$blob": 1}',
        '{"$blob": true}', '{"$blob": 0, "x": 1}', '[{"$blob": 0}, {"$blob": 0}]', '{"$blob": -1}', '{"$blob": 5}', '{"$blob": 4.0}', "1 2", "", "'a'",
        "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2),
    ],
)  # fmt: skip
def test_malformed_text_is_refused(text: str):
    with pytest.raises(FrameError):
        decode(text.encode(), b"blob")


def test_unused_blob_is_refused():
    with pytest.raises(FrameError):
        decode(b"1", b"blob")


@pytest.mark.parametrize(
    "head",
    [
        b"\x80\x04\x95" + bytes(20),
        PREFIX.pack(MAGIC, 1 << 30, 0),
        PREFIX.pack(MAGIC, 2, 1 << 20),
        PREFIX.pack(MAGIC, 2, (1 << 32) - 1),
    ],
)
def test_bad_prefix_is_refused_at_once(head: bytes):
    decoder = Decoder(LIMIT)
    decoder.feed(head)
    with pytest.raises(FrameError):
        decoder.next()


def test_pickle_is_never_loaded():
    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('loaded')",)

    with pytest.raises(FrameError):
        decode(pickle.dumps(Bomb()), b"")
    pickled = pickle.dumps(Bomb())
    assert decode(json.dumps({"$blob": len(pickled)}).encode(), pickled) == pickled
    assert struct.calcsize("!4sII") == PREFIX.size
