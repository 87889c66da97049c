"""What the scripted experimenter reads of a failed test."""

import numpy as np

from openmaia.core.images import EncodedImage
from openmaia.core.messages import assistant, system, user
from openmaia.offline.experimenter.transcript import read


def image(value: int) -> EncodedImage:
    return EncodedImage.of(np.full((8, 8, 3), value, np.uint8), ["source"])


def test_images_of_a_test_are_no_exemplars():
    own, near = image(200), image(100)
    messages = [
        system("instructions"),
        user("question"),
        assistant("[CODE]: look"),
        user("top 1: 2.5 (percentile 99)\n[image-1, original]", own),
        assistant("[DESCRIPTION]: x\n[LABEL 1]: dog"),
        user("[TEST]: no\n- the label 'dog' failed: its near misses …\n", "[near miss of 'dog', shows 'cat']\n", near),
    ]
    found = read(messages)
    assert [each.original for each in found.exemplars] == [own]
    assert (found.refuted, found.sent_back, found.is_last_call) == (frozenset({"dog"}), 1, False)
    before = read(messages[:-2])
    assert (before.refuted, before.sent_back) == (frozenset(), 0)
