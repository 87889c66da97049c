"""The judges `detector`, an open-vocabulary detector, and `none`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from openmaia.core.components import Component, JudgeConfig, Site, target_class
from openmaia.models.weights import WeightSource

BOX_THRESHOLD = 0.3
"""Minimum score of a detected box, as in the synthetic units of the MAIA paper. Not validated for other concepts."""


@dataclass
class DetectorConfig(JudgeConfig):
    """Grounding DINO, whose regions are also compared with the unit's activation maps (mask IoU)."""

    detector: str = "IDEA-Research/grounding-dino-tiny"
    """The Grounding DINO."""
    segmenter: str = ""
    """The SAM that turns boxes into masks, such as `facebook/sam-vit-huge`. Empty: the detector's boxes are the regions."""


@dataclass
class NoJudgeConfig(JudgeConfig):
    """No judge and no detection."""


class Detector(Component):
    """Builds a `DetectorJudge`."""

    Config: ClassVar = DetectorConfig

    @classmethod
    def build(cls, config: DetectorConfig, site: Site) -> Any:
        from openmaia.models.targets.synthetic.rules import SIZE

        return detector_judge(config.detector, config.segmenter, SIZE)

    @staticmethod
    def problems(config: DetectorConfig, site: Site) -> Iterator[str]:
        if site.target is not None and target_class(site.target).is_detector:
            yield (
                f"{site.key}.kind={config.kind} would judge {site.target.kind} units by the detector that they are made of; "
                f"give a language model as evaluate.writer, or {site.key}.kind=none"
            )

    @staticmethod
    def weights(config: DetectorConfig, site: Site) -> Iterator[WeightSource]:
        for key in ("detector", "segmenter"):
            if given := getattr(config, key):
                yield WeightSource(role=site.pool, key=f"{site.key}.{key}", given=given)


class NoJudge(Component):
    """Stands for no judge: `build` returns None."""

    Config: ClassVar = NoJudgeConfig
    is_absent = True

    @classmethod
    def build(cls, config: NoJudgeConfig, site: Site) -> Any:
        return None


def detector_judge(detector: str, segmenter: str, size: int) -> Any:
    """Loads a `DetectorJudge`.

    Args:
        detector: The name of a Grounding DINO.
        segmenter: The name of a SAM that computes the mask of each detected object. Empty: the mask is its box.
        size: Side of the square to which images are resized, in pixels.
    """
    from openmaia.evaluation.judging.judges import DetectorJudge
    from openmaia.models.targets.synthetic.detector import GroundingDino
    from openmaia.models.targets.synthetic.segmenter import BoxSegmenter, SamSegmenter

    masks = SamSegmenter(segmenter) if segmenter else BoxSegmenter()
    return DetectorJudge(
        GroundingDino(detector, BOX_THRESHOLD), masks, f"detector ({detector}, {segmenter or 'boxes'})", size
    )
