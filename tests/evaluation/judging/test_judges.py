"""Judges: language models, the scripted experimenter's eyes, and a detector."""

from pathlib import Path

import pytest

from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.evaluation.judging.judges import DetectorJudge, LocatingJudge, ModelJudge, parse_verdicts
from openmaia.evaluation.language_model import MalformedAnswer
from openmaia.models.targets.synthetic.detector import GroundingDino
from openmaia.models.targets.synthetic.segmenter import BoxSegmenter
from openmaia.offline.evaluation.eyes import EyesJudge
from openmaia.offline.vocabulary.words import WORDS
from tests.evaluation.scripted_model import ScriptedModel, answering, model
from tests.helpers.samples import noise
from tests.helpers.tiny import detection as tiny

REFUSAL = "I'm sorry, but I can't help with that."


@pytest.mark.parametrize("answer", ["1: yes\n2: no\n3: unsure", "1. Yes.\n2. No, it is a cup.\n3. unknown"])
def test_verdicts_parse(answer: str):
    assert parse_verdicts(answer, 3) == (True, False, None)


@pytest.mark.parametrize("answer", ["", REFUSAL, "1: yes", "1: yes\n2: no\n3: perhaps", "yes\nno\nno"])
def test_verdicts_refuse_missing_labels(answer: str):
    with pytest.raises(MalformedAnswer):
        parse_verdicts(answer, 3)


def test_model_judges_each_image_alone():
    backbone = ScriptedModel(lambda question, _: "1: yes\n2: no")
    assert ModelJudge(model(backbone)).judge([noise(1), noise(2)], ["dog", "cat"]) == [(True, False)] * 2
    assert [chat.messages[1].images[0].digest for chat in backbone.chats] == [noise(1).digest, noise(2).digest]


def test_model_that_refuses_is_unknown():
    assert ModelJudge(model(answering(REFUSAL))).judge([noise(1)], ["dog", "cat"]) == [(None, None)]


def test_eyes_know_vocabulary_words_only():
    seeing, blind = (EyesJudge(lambda pixels, v=v: {word.name: v for word in WORDS}, "net") for v in (1.0, 0.0))
    assert seeing.judge([noise(1)], ["zyzzyva", "", "red"]) == [(None, None, True)]
    assert blind.judge([noise(1)], ["red"]) == [(False,)]
    assert "net" in seeing.name


def test_detector_judges_and_locates_alike(tmp_path: Path):
    def judge(threshold: float) -> DetectorJudge:
        return DetectorJudge(GroundingDino(tiny.grounding_dino(tmp_path), threshold), BoxSegmenter(), "tiny", 224)

    assert isinstance(judge(0.5), LocatingJudge)
    images = [noise(seed, 40, 60) for seed in range(3)]
    verdicts = judge(0.5).judge(images, ["dog", "sky"])
    regions = judge(0.5).locate(images, ["dog", "sky"])
    assert [any(row) for row in verdicts] == [bool(region.any()) for region in regions]
    assert {region.shape for region in regions} == {(224, 224)}
    assert judge(1.0).judge(images[:1], ["dog"]) == [(False,)]
    assert not judge(1.0).locate(images[:1], ["dog"])[0].any()


def test_detector_must_not_judge_synthetic_units():
    with pytest.raises(UsageError, match="the detector that they are made of"):
        load(["name=x", "units=all", "target.kind=synthetic", "target.name=s", "evaluate.judge.kind=detector"])
