"""What an evaluation of descriptions needs: the models and data that it uses, and the settings of its protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmaia.core.images import EncodedImage
from openmaia.core.services import Generator, Target
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.agreement import ClaimSimilarity
from openmaia.evaluation.claims import Sharing
from openmaia.evaluation.judging.judges import Judge
from openmaia.evaluation.language_model import LanguageModel
from openmaia.evaluation.prompts import PUBLISHED_COUNT, PromptPreset, PromptWriter
from openmaia.evaluation.trials import LayerScale
from openmaia.evaluation.truth import KnownTruths


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationServices:
    """The models and data that test descriptions.

    `evaluate_investigation`, which tests a single description, uses only the fields from `generator` to `judge`.
    """

    generator: Generator
    """Generates the test images."""
    target: Target
    """The network whose units are described."""
    writer: PromptWriter
    """Writes the prompts of the test images."""
    model: LanguageModel | None = None
    """The language model that writes and rates prompts in the preset `pairing`; None if none is configured."""
    judge: Judge | None = None
    """Decides which labels an image shows. If it is None, the tests of `openmaia.evaluation.judging` are left out."""
    photographs: Sequence[EncodedImage] = ()
    """Photographs of the test split, which no agent has seen. They serve as random control images and for the tests of
    `openmaia.evaluation.judging`."""
    captions: Mapping[str, str] = field(default_factory=dict[str, str])
    """What photographs show, by the digest of the dataset image; those without a caption are missing."""
    scales: Mapping[str, LayerScale] = field(default_factory=dict[str, LayerScale])
    """How the units of each layer respond to the dataset images, as stored with the exemplars. The responses in trials are standardised by them, or by the images of the trial itself if the
    layer is missing (see `openmaia.evaluation.trials.standardise`)."""
    similarities: Sequence[ClaimSimilarity] = ()
    """Methods of comparing two texts: the claims of repeated investigations of a unit, or a label and a known truth."""
    truths: KnownTruths = field(default_factory=dict[Unit, tuple[str, ...]])
    """What units respond to, where it is known: for synthetic units, and for units that are defined by a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDesign:
    """How an evaluation writes the prompts that test descriptions, and its numbers of images."""

    preset: PromptPreset = "labels"
    """The method by which test prompts are written, see `openmaia.evaluation.prompts`."""
    n: int = 30
    """Number of positive and of neutral prompts for each description, up to the first look. The presets `paper` and
    `pairing` use 7."""
    looks: tuple[int, ...] = ()
    """Numbers of positive and of neutral prompts up to each further look. Those that are not above `n` are left out,
    and the published presets have a single look."""
    seed: int = 0
    """The seed of the run, from which the seeds of prompts, images and random words are derived."""
    random: int = 100
    """Largest number of photographs that are the random control images of one description."""
    generator: str = ""
    """Name of the generator of the test images in results."""
    detect: int = 24
    """Number of photographs that the judge inspects for each description: do they show what it names? At most as many
    parts of photographs are inspected, too. 0 leaves out both tests (`openmaia.evaluation.judging`)."""

    random_words: int = 60
    """Largest number of random words that are tested as descriptions in each layer, as a control."""
    sharing: Sharing = "label"
    """When two descriptions count as alike, so that one is no control for the other."""

    @property
    def prompts(self) -> int:
        """The number of positive test prompts for each description up to the first look, which depends on `preset`."""
        return self.sizes[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of positive test prompts for each description up to each look, in increasing order."""
        return look_sizes(self.preset, self.n, self.looks)


def look_sizes(preset: str, n: int, looks: Sequence[int]) -> tuple[int, ...]:
    """Returns `EvaluationDesign.sizes` of a design with these fields."""
    first = PUBLISHED_COUNT if preset in ("paper", "pairing") else n
    return (first, *sorted({size for size in looks if size > first} if preset == "labels" else ()))
