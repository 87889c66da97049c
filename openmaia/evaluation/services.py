"""The models, data and settings of an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.core.images import EncodedImage
from openmaia.core.services import Exemplars, Generator, Target
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import ClaimSimilarity
from openmaia.evaluation.analysis.overlap import ExploredPrompts
from openmaia.evaluation.claims import Sharing
from openmaia.evaluation.judging.judges import Judge
from openmaia.evaluation.language_model import LanguageModel
from openmaia.evaluation.prompts import PUBLISHED_COUNT, PromptPreset, PromptWriter
from openmaia.evaluation.trials import LayerScale
from openmaia.evaluation.truth import KnownTruths


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationServices:
    """The models and data of an evaluation. The test of one description uses only those up to `exemplars`."""

    generator: Generator
    target: Target
    writer: PromptWriter
    model: LanguageModel | None = None
    """Writes and rates prompts in the preset `pairing`."""
    judge: Judge | None = None
    """None: images are not checked, and detection is left out."""
    pictures_judge: Judge | None = None
    """Knows what pictures of the dataset show, without looking. It is asked before captions and `judge`."""
    exemplars: Exemplars | None = None
    """None: it is not looked for the labels in exemplars."""
    photographs: Sequence[EncodedImage] = ()
    """Of the test split."""
    captions: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the digest of the dataset image, of both splits; images without a caption are missing."""
    scales: Mapping[str, LayerScale] = field(default_factory=dict[str, LayerScale])
    """See `ReferenceData.scales`."""
    similarities: Sequence[ClaimSimilarity] = ()
    """Compare the claims of replicates, or a label and a known truth."""
    at_once: int = 1
    """Descriptions that are tested at the same time, if nothing but batches is waited for."""
    truths: KnownTruths = field(default_factory=dict[Unit, tuple[str, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDesign:
    """How prompts are written, and numbers of images."""

    preset: PromptPreset = "labels"
    """See `openmaia.evaluation.prompts`."""
    n: int = 30
    """Positive, and neutral, prompts of a description up to the first look. The presets `paper` and `pairing` use 7."""
    looks: tuple[int, ...] = ()
    """The same up to each further look. Numbers that are not above `n` are left out, and the published presets have a
    single look."""
    seed: int = 0
    random: int = 100
    """Photographs that are controls of one description, at most."""
    generator: str = ""
    """Its name in results."""
    detect: int = 24
    """Photographs that the judge inspects for each description, and parts of photographs, at most. 0: neither."""

    random_words: int = 60
    """Random words that are tested in each layer, at most."""
    sharing: Sharing = "label"
    withheld: ExploredPrompts = frozenset()
    """Prompts that no test image has, whatever the agent drew: those of the bank."""

    @property
    def prompts(self) -> int:
        """The number of positive prompts up to the first look."""
        return self.sizes[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of positive prompts up to each look, in increasing order."""
        return look_sizes(self.preset, self.n, self.looks)


def look_sizes(preset: str, n: int, looks: Sequence[int]) -> tuple[int, ...]:
    """Returns `EvaluationDesign.sizes` of a design with these fields."""
    first = PUBLISHED_COUNT if preset in ("paper", "pairing") else n
    return (first, *sorted({size for size in looks if size > first} if preset == "labels" else ()))
