"""Config sections for uses of descriptions: evaluation, bias detection and removal of spurious features."""

from dataclasses import dataclass, field
from typing import Literal

from openmaia.core.components import GeneratorConfig, JudgeConfig, WriterConfig, within


@dataclass
class EvaluateConfig:
    """`evaluate`: tests on new images whether the descriptions of units are true."""

    preset: Literal["labels", "paper", "repo", "pairing"] = "labels"
    """How test prompts are written. `labels`: prompts for each label, each with a matched neutral prompt; `paper`,
    `repo`, `pairing`: the protocols of the MAIA papers and their code, whose prompts a language model writes (see
    `openmaia.evaluation.prompts`)."""
    n: int = 10
    """Number of positive images per description, and of neutral ones, up to the first look at the responses. The
    presets paper and pairing always use 7."""
    looks: list[int] = field(default_factory=lambda: [20, 40, 60])
    """The same numbers up to further looks: more images are drawn until the intervals of a description's AUCs are clear
    or one is hopeless. Numbers that are not above `n` are no looks; an empty list fixes the number of images at `n`.
    The published presets always have one look."""
    bootstrap: int = within(2000, most=1_000_000)
    """Number of bootstrap resamples for each confidence interval."""
    pictures: int = within(200, zero=True)
    """Number of photographs of the test split that are loaded as random control images and for detection (see
    `detect`). 0: neither is done."""
    random: int = within(100, zero=True)
    """Largest number of these photographs that are control images of one description. They are drawn at random, others
    for each unit, and none shows a label as far as captions or the judge tell."""
    detect: int = within(24, zero=True)
    """Detection: number of photographs per description. A judge says of each whether it shows what the description
    names, and this is compared with the unit's activations. Fuzzing: largest number of crops of photographs per
    description that are judged in the same way. The crops come from the photographs that excite the unit most, at
    most a fifth of all. Each photograph gives two crops: the part that excites the unit most, and another part. 0:
    neither test."""
    random_words: int = within(60, zero=True)
    """Largest number of random words that are tested as if each were the description of a unit, with the images of the
    first look. A writer with a smaller vocabulary tests all of its words. The images are generated once for all
    layers, and the scores extend the null distribution of the descriptions' p-values. 0: none."""
    sharing: str = "label"
    """When two descriptions are alike, so that one is not wrong where the other is right. `label`: they have a label in
    common; `labels`: all their labels are the same; the kind of a writer that knows its words, such as `scene_rules`: they
    have a word in common, or a wider one ("red boat", "boat" and "vehicle")."""
    judge: JudgeConfig | None = None
    """The judge that decides whether an image shows a description. null: the writer if it is a language model, otherwise
    the judge that the backbone brings, if it brings one."""
    writer: WriterConfig | None = None
    """The writer of the test prompts. null: the backbone if it is a language model, and rules of the offline vocabulary
    otherwise. The preset paper needs another model than the agent's."""
    generator: GeneratorConfig | None = None
    """The generator of the test images, if it is another one than that of the investigations (`generator`). Its pool is
    `pools.test_generator`."""


@dataclass
class BiasConfig:
    """`bias`: tests agents' claims that a context, such as snow, biases a classifier's score of a class
    (`openmaia study bias`)."""

    pairs: int = 40
    """Number of matched pairs of images, with and without the context, for each claimed context."""
    smallest: float = within(0.02, zero=True)
    """Smallest difference of a class's mean probability, with and without the context, that counts as a bias."""
    rate: float = within(0.05, most=1)
    """False discovery rate among the supported biases of a run (Benjamini and Hochberg)."""
    failures: int = within(40, zero=True)
    """Number of pairs that are searched for misclassified images, per supported bias. 0: no search."""
    detector: str = ""
    """The Grounding DINO that checks whether images show the class, if the generator cannot tell. Empty: the judge of
    `evaluate.judge` checks it."""


@dataclass
class SpuriousConfig:
    """`spurious`: removes the units of a classifier that follow spurious features (`openmaia study spurious`).

    The defaults are those of the MAIA paper for the O2O-Easy variant of the dataset Spawrious.
    """

    folder: str = ""
    """The Spawrious folder that holds `spawrious224`. Empty: the generator draws a dataset of that layout."""
    classes: list[str] = field(default_factory=lambda: ["bulldog", "dachshund", "labrador", "corgi"])
    """The classes that the classifier distinguishes."""
    train_locations: list[str] = field(default_factory=lambda: ["desert", "jungle", "dirt", "snow"])
    """The usual location of each class in training."""
    test_locations: list[str] = field(default_factory=lambda: ["dirt", "snow", "desert", "jungle"])
    """The location of each class in the test: the same locations in another order."""
    filler: str = "beach"
    """The location of the training images of each class that are not at the usual location of the class."""
    other_locations: list[str] = field(default_factory=lambda: ["mountain"])
    """Further locations that the factorial probe uses (see `probe`)."""
    prompt: str = "{class} on {location}"
    """The prompt of an image that is drawn, with `{class}` (its article comes before it) and `{location}` once each, such as
    `{class} in the meadow {location}` for the locations `at dusk` and `by day`."""
    per_cell: int = 3168
    """Number of images of each class in each of the two environments of Spawrious, for training and likewise for the
    test."""
    shares: list[float] = field(default_factory=lambda: [0.97, 0.87])
    """Share of a class's training images at its usual location, for each of the two environments."""
    validation: float = within(0.1, zero=True)
    """Share of the training images that is held out as validation images."""
    epochs: int = 1
    """Training epochs."""
    rate: float = 1e-4
    """Learning rate."""
    weight_decay: float = within(1e-4, zero=True)
    """Weight decay."""
    dropout: float = within(0.1, zero=True)
    """Dropout before the last layer."""
    batch: int = 64
    """Batch size, which the paper does not give."""
    threads: int = 2
    """CPU threads for training the classifier and computing its features."""
    units: int = 50
    """Number of units that l1 regularization selects for the agent to investigate."""
    draws: int = 100
    """Number of random subsets of the units with which the agent's selection is compared."""
    balanced: int = 320
    """Number of images in one balanced validation set, which has equally many of each class at each location."""
    pool: int = 3200
    """Number of images from which the balanced sets are drawn."""
    trials: int = 10
    """Number of balanced sets that are drawn."""
    splits: int = 5
    """Number of random divisions of a balanced set into halves. The strength of the l1 penalty is chosen by the mean
    accuracy on the half that is held out."""
    tolerance: float = 1e-4
    """Tolerance of scikit-learn's solvers."""
    probe: int = within(4, zero=True)
    """Number of images per class and location of the factorial probe, which generates every class at every location and
    compares the effects of both on a unit, as a reference for the agent. 0: no probe."""
    seeds: int = 3
    """Number of classifiers, each with its own data split, data order and initial weights."""
