"""What all trials share: control images and the responses to them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import numpy as np

from openmaia.agent.tools.seeds import seed
from openmaia.core.images import EncodedImage, flatten
from openmaia.core.services import Generation, LayerProbe, Target
from openmaia.core.units import TargetInfo
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.overlap import ExploredPrompts, fold
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.sightings import find_shown
from openmaia.evaluation.trials import LayerScale, Stimulus, Trial
from openmaia.exemplars.store import ExemplarStore

LOG = logging.getLogger(__name__)


class ControlImages(NamedTuple):
    """The control images of a claim."""

    stimuli: list[Stimulus]
    """With the activation of its unit."""
    responses: list[FloatArray]
    """For each, of all units of the layer, (units,)."""
    photographs: tuple[int, int]
    """How many of the photographs that were drawn show a label, which are no controls, and of how many this is known."""


LayerResponses = Mapping[str, FloatArray]
"""For each layer the responses of its units to a list of images, (images, units)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceData:
    """Control images, which depend on no claim, and statistics of the units, computed once."""

    unrelated: tuple[Stimulus, ...]
    """Their `activation` is 0; `controls` returns copies with those of a unit."""
    unrelated_responses: LayerResponses
    photographs: tuple[EncodedImage, ...]
    """Of the test split: for detection, and as controls."""
    photograph_responses: LayerResponses
    captions: Mapping[str, str]
    """See `EvaluationServices.captions`."""
    random: int
    """Photographs that are controls of one claim, at most."""
    seed: int
    scales: Mapping[str, LayerScale]
    """From the exemplars. For a layer that is missing, trials are standardised by their own images (see `standardise`).
    """
    words: Mapping[str, Sequence[Trial]] = field(default_factory=dict[str, Sequence[Trial]])
    """For each layer the trials of random words; empty while these are measured themselves."""

    def controls(
        self, claim: Claim, services: EvaluationServices, explored: ExploredPrompts = frozenset()
    ) -> ControlImages:
        """Returns a claim's unrelated images and photographs, without those that show what it names and those of
        prompts in `explored`.

        The writer decides about unrelated images by their prompts; if it cannot, there are none. For photographs see
        `find_shown`.
        """
        try:
            related = services.writer.related(claim, [stimulus.prompt for stimulus in self.unrelated])
        except UnansweredQuestion:
            related = frozenset(range(len(self.unrelated)))
        drawn = {row for row, stimulus in enumerate(self.unrelated) if fold(stimulus.prompt) in explored}
        rows = [row for row in range(len(self.unrelated)) if row not in related | drawn]
        photographs, shown = self._draw_photographs(claim, services)
        responses = [self.unrelated_responses[claim.unit.layer][row] for row in rows]
        responses += [self.photograph_responses[claim.unit.layer][row] for row, _ in photographs]
        stimuli = [*(self.unrelated[row] for row in rows), *(stimulus for _, stimulus in photographs)]
        activations = [float(response[claim.unit.index]) for response in responses]
        stimuli = [replace(s, activation=a) for s, a in zip(stimuli, activations, strict=True)]
        return ControlImages(stimuli, responses, shown)

    def _draw_photographs(
        self, claim: Claim, services: EvaluationServices
    ) -> tuple[list[tuple[int, Stimulus]], tuple[int, int]]:
        """Draws photographs at random, others for each unit. Those that are seen to show a label are replaced, and counted
        (see `ControlImages.photographs`).
        """
        random = Random(seed(self.seed, "evaluate", f"photographs of {claim.unit}", 0))
        order = random.sample(range(len(self.photographs)), len(self.photographs))
        drawn: list[tuple[int, Stimulus]] = []
        shown = known = 0
        while order and len(drawn) < self.random:
            missing = self.random - len(drawn)
            rows, order = order[:missing], order[missing:]
            seen = find_shown(claim, [self.photographs[row] for row in rows], self.captions, services)
            for row, (shows, by) in zip(rows, seen, strict=True):
                shown, known = shown + (shows is True), known + (shows is not None)
                image = self.photographs[row]
                stimulus = Stimulus(
                    role="random",
                    digest=image.digest,
                    sources=image.sources,
                    shows=None if shows is None else True,  # the image is as requested: it does not show a label
                    verified_by=by,
                    activation=0.0,
                )
                if shows is not True:
                    drawn.append((row, stimulus))
        return drawn, (shown, known)


def prepare_reference(layers: Iterable[str], services: EvaluationServices, design: EvaluationDesign) -> ReferenceData:
    """Generates the unrelated images, and measures the responses of the layers to them and to photographs. If the
    writer gives no usable answer, there are none, and the scores that compare with them are None.
    """
    layers, target = sorted(layers), services.target
    try:
        prompts = services.writer.unrelated(design.sizes[-1], design.seed)
    except UnansweredQuestion as error:
        LOG.warning("the evaluation has no unrelated images as controls: %s", error.message)
        prompts = []
    seeds = [seed(design.seed, "evaluate", f"unrelated {number}", 0) for number in range(len(prompts))]
    requests = [Generation(prompt=prompt, seed=n, split="test") for prompt, n in zip(prompts, seeds, strict=True)]
    generated = services.generator.generate(requests) if requests else []
    return ReferenceData(
        unrelated=tuple(
            Stimulus(
                role="unrelated",
                prompt=prompt,
                digest=result.image.digest,
                sources=result.image.sources,
                missing_terms=result.missing_terms,
                activation=0.0,
            )
            for prompt, result in zip(prompts, generated, strict=True)
        ),
        unrelated_responses=respond([result.image for result in generated], layers, target),
        photographs=tuple(services.photographs),
        photograph_responses=respond(services.photographs, layers, target),
        captions=services.captions,
        random=design.random,
        seed=design.seed,
        scales=services.scales,
    )


def respond(images: Sequence[EncodedImage], layers: Sequence[str], target: Target) -> LayerResponses:
    """Measures the responses of all units of `layers` to all images. Empty without images."""
    # Requests for one image are adjacent, so that one forward pass can answer them.
    probes = [LayerProbe(layer=layer, image=image) for image in images for layer in layers]
    answers = target.respond(probes) if probes else []
    return {layer: np.stack(answers[n :: len(layers)]) for n, layer in enumerate(layers)} if answers else {}


def load_photographs(dataset: ImageDataset, count: int, size: int) -> list[EncodedImage]:
    """Loads at most `count` photographs of the test split in the order of their digests, shrunk until the shorter side
    has at most `size` pixels.
    """
    items = {item.digest: item for item in dataset.photos("test")}
    photographs: list[EncodedImage] = []
    for digest in sorted(items)[:count]:
        image = flatten(items[digest].load())
        shrink = size / min(image.size)
        if shrink < 1:
            image = image.resize((max(round(image.width * shrink), 1), max(round(image.height * shrink), 1)))
        photographs.append(EncodedImage.of(np.asarray(image), [digest], items[digest].recipe))
    return photographs


def picture_captions(dataset: ImageDataset) -> dict[str, str]:
    """Returns the caption and category of the images of a dataset, by digest, where known."""
    texts = {item.digest: f"{item.caption} {item.category.replace('/', ', ')}".strip() for item in dataset.items}
    return {digest: text for digest, text in texts.items() if text}


def exemplar_scales(store: ExemplarStore, info: TargetInfo) -> dict[str, LayerScale]:
    """Reads how each unit responds to the dataset. A layer is left out if the values are not stored for all of its
    units.
    """
    scales: dict[str, LayerScale] = {}
    for layer, units in info.layers.items():
        spread = store.spread(layer)
        if len(spread) == units:
            values = np.array([spread[index] for index in range(units)])
            top = store.top_means(layer)
            scales[layer] = LayerScale(
                mean=values[:, 0],
                std=values[:, 1],
                top=np.array([top.get(index, np.nan) for index in range(units)]),
            )
    return scales
