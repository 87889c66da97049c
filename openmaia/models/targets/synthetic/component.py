"""The target `synthetic`: units that respond to concepts, which Grounding DINO finds and SAM cuts out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from openmaia.core.components import Site, TargetComponent, TargetConfig
from openmaia.core.units import TargetInfo, Unit
from openmaia.models.targets.synthetic import units
from openmaia.models.weights import WeightSource


@dataclass
class SyntheticConfig(TargetConfig):
    """Units that respond to given concepts, which Grounding DINO and SAM find in the image. They are those of the MAIA
    papers, or units that you define by `mode` and by `labels` or `folder`."""

    units: Literal["repo", "paper"] = "repo"
    """The synthetic units and rules of the published MAIA code (`repo`) or those of the MAIA paper (`paper`)."""
    mode: Literal["", "mono", "or", "and", "andnot"] = ""
    """For units of your own: what they respond to. `mono`: one concept; `or`: one of two concepts; `and`, `andnot`: the
    first concept if the second one is present (`and`) or absent (`andnot`)."""
    labels: list[str] = field(default_factory=list[str])
    """The concepts of the only unit of your own: one for the mode `mono`, otherwise two, such as `[cheese, lemon]`."""
    folder: str = ""
    """Instead of `labels`, for several units of one mode: a folder with one subfolder of images per unit, whose name
    gives the concepts, `LABEL` or `LABEL1_LABEL2`."""
    detector: str = "IDEA-Research/grounding-dino-tiny"
    """The Grounding DINO that finds concepts."""
    segmenter: str = "facebook/sam-vit-huge"
    """The SAM that turns boxes into masks. Empty: the boxes themselves are the masks."""


class Synthetic(TargetComponent):
    """Units that respond to given concepts."""

    Config: ClassVar = SyntheticConfig
    is_detector = True

    @classmethod
    def build(cls, config: SyntheticConfig, site: Site) -> Any:
        from openmaia.models.targets.synthetic.target import SyntheticTarget

        listed = cls.concepts(config) or None
        return SyntheticTarget(config.name, config.detector, config.segmenter, config.units, listed=listed)

    @staticmethod
    def problems(config: SyntheticConfig, site: Site) -> Iterator[str]:
        if config.mode and config.units != "repo":
            yield f"target.units={config.units} selects units, and target.mode defines others; leave one of them out"

    @staticmethod
    def weights(config: SyntheticConfig, site: Site) -> Iterator[WeightSource]:
        for key in ("detector", "segmenter"):
            if given := getattr(config, key):
                yield WeightSource(role=site.pool, key=f"target.{key}", given=given)

    @classmethod
    def outline(cls, config: SyntheticConfig, site: Site) -> TargetInfo:
        counts = {mode: len(concepts) for mode, concepts in _listed(config).items()}
        return TargetInfo(name=config.name, layers=counts, digest="", input_size=(0, 0))

    @staticmethod
    def truths(config: SyntheticConfig, info: TargetInfo) -> Mapping[Unit, tuple[str, ...]]:
        return {
            Unit(target=info.name, layer=layer, index=index): units.slots(layer, concepts)
            for layer, several in _listed(config).items()
            for index, concepts in enumerate(several)
        }

    @staticmethod
    def concepts(config: SyntheticConfig) -> units.SyntheticUnits:
        """Raises UsageError if the definitions are invalid."""
        is_own = config.mode or config.labels or config.folder
        return units.read_units(config.mode, config.labels, config.folder) if is_own else {}

    @staticmethod
    def exemplar_facts(config: Any) -> Mapping[str, Any]:
        return {}  # its digest has all

    @staticmethod
    def published_name(config: Any) -> str:
        return "synthetic"


def _listed(config: SyntheticConfig) -> units.SyntheticUnits:
    return Synthetic.concepts(config) or units.read(config.units)
