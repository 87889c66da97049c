"""One protocol on any list of claims: prompts, images, responses, controls, detection."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from openmaia.evaluate import entailment, trials
from openmaia.evaluate.asking import Asker, Unanswered
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.detection import detect
from openmaia.evaluate.judges import Judge
from openmaia.evaluate.prompts import unrelated
from openmaia.evaluate.scores import Evaluation, partners
from openmaia.evaluate.statistics import Values
from openmaia.evaluate.trials import Control, Scale, Trial
from openmaia.evaluate.writers import PUBLISHED, Preset, Shot, Writer
from openmaia.images import Picture
from openmaia.pictures.vocabulary import find
from openmaia.services import Activation, Generation, Generator, LayerProbe, Probe, Target
from openmaia.tools.seeds import seed
from openmaia.units import Unit

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """asker: of the preset `pairing`. pictures: of the test half, for the random control and for detection. scales: by
    layer, from exemplars; where a layer has none, trials are standardised by their own controls."""

    generator: Generator
    target: Target
    writer: Writer
    asker: Asker | None = None
    judge: Judge | None = None
    pictures: Sequence[Picture] = ()
    scales: Mapping[str, Scale] = field(default_factory=dict[str, Scale])


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """n: positive prompts per description, and as many neutral ones; the presets paper and pairing take 7. random: of the
    pictures, how many serve as the random control. detect: how many a judge marks for each description. at_once: claims
    under way at once, so that pools get batches to fill; a host in this process is no pool and serves one at a time."""

    preset: Preset = "labels"
    n: int = 30
    seed: int = 0
    random: int = 30
    detect: int = 24
    at_once: int = 1

    @property
    def prompts(self) -> int:
        return PUBLISHED if self.preset in ("paper", "pairing") else self.n


def evaluate_claims(claims: Sequence[Claim], instruments: Instruments, design: Design) -> list[Evaluation]:
    """In the order of the claims: any units, methods and replicates together."""
    found = list(try_claims(claims, instruments, design))
    return [Evaluation(trial=trial, others=partners(trial, found)) for trial in found]


def try_claims(claims: Sequence[Claim], instruments: Instruments, design: Design) -> Iterator[Trial]:
    """A trial each, in their order, as they are done. Raises ServiceError where a service stays dead."""
    if not claims:
        return
    controls = Controls.made({claim.unit.layer for claim in claims}, instruments, design)
    paired = _paired(claims, instruments, design) if design.preset == "pairing" else None

    def one(at: int) -> Trial:
        shots = _shots(claims[at], instruments.writer, design) if paired is None else paired[at]
        return _tried(claims[at], shots, controls, instruments, design)

    with ThreadPoolExecutor(design.at_once) as pool:
        yield from pool.map(one, range(len(claims)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Images that serve all claims. pool: the test pictures of the detection, with responses by layer, (pictures, units)."""

    unrelated: tuple[Control, ...]
    random: tuple[Control, ...]
    pool: Mapping[str, Values]

    @classmethod
    def made(cls, layers: Iterable[str], instruments: Instruments, design: Design) -> "Controls":
        layers = sorted(layers)
        prompts = unrelated(design.prompts)
        requests = [
            Generation(prompt=prompt, seed=seed(design.seed, "evaluate", f"unrelated {at}", 0), half="test")
            for at, prompt in enumerate(prompts)
        ]
        drawn = instruments.generator.generate(requests)
        answers = _responses([one.picture for one in drawn], layers, instruments.target)
        pool = _responses(instruments.pictures, layers, instruments.target)
        return cls(
            unrelated=tuple(
                _control("unrelated", prompt, one.picture, answers, at, one.undrawn)
                for at, (prompt, one) in enumerate(zip(prompts, drawn, strict=True))
            ),
            random=tuple(
                _control("random", "", picture, pool, at)
                for at, picture in enumerate(instruments.pictures[: design.random])
            ),
            pool=pool,
        )

    def of(self, claim: Claim) -> list[Control]:
        """Without the unrelated prompts that name something the claim names."""
        named = {word.name for label in (claim.description, *claim.labels) for word in find(label)}
        apart = [one for one in self.unrelated if not named & {word.name for word in find(one.prompt)}]
        return [*apart, *self.random]


def _responses(pictures: Sequence[Picture], layers: Sequence[str], target: Target) -> dict[str, Values]:
    """By layer, (pictures, units). All layers of a picture are asked for together: one forward pass has them all."""
    probes = [LayerProbe(layer=layer, picture=picture) for picture in pictures for layer in layers]
    found = target.respond(probes) if probes else []
    return {layer: np.stack(found[at :: len(layers)]) for at, layer in enumerate(layers)} if found else {}


def _control(
    role: str, prompt: str, picture: Picture, found: Mapping[str, Values], at: int, undrawn: tuple[str, ...] = ()
) -> Control:
    responses = {layer: values[at] for layer, values in found.items()}
    return Control(
        role=role, prompt=prompt, picture=picture, sources=picture.sources, undrawn=undrawn, responses=responses
    )


Written = list[Shot] | Unanswered


def _shots(claim: Claim, writer: Writer, design: Design) -> Written:
    try:
        return [] if claim.is_abstention else writer.write(claim, design.prompts, design.seed)
    except Unanswered as error:
        return error


def _paired(claims: Sequence[Claim], instruments: Instruments, design: Design) -> dict[int, Written]:
    """By the claim's place: all claims about a unit are judged together."""
    assert instruments.asker is not None
    found: dict[int, Written] = {}

    def unit(at: int) -> tuple[Unit, int]:
        return claims[at].unit, claims[at].replicate

    for _, group in groupby(sorted(range(len(claims)), key=unit), key=unit):
        members = list(group)
        answers = entailment.paired([claims[at] for at in members], instruments.asker, design.seed)
        found |= dict(zip(members, answers, strict=True))
    return found


def _tried(claim: Claim, shots: Written, controls: Controls, instruments: Instruments, design: Design) -> Trial:
    if isinstance(shots, Unanswered) or not shots:
        return Trial(
            claim=claim,
            outcome="abstained" if claim.is_abstention else "unwritten",
            cause=shots.message if isinstance(shots, Unanswered) else "",
            writer=instruments.writer.name,
            protocol=design.preset,
        )
    own, responses = trials.made(claim, shots, instruments.generator, instruments.target, instruments.judge)
    common = controls.of(claim)
    stimuli = [*own, *(trials.shared(claim, control) for control in common)]
    whole = np.concatenate([responses, *(control.responses[claim.unit.layer][None] for control in common)])
    scale = instruments.scales.get(claim.unit.layer)
    matrix, location, spread = trials.standardised(whole, stimuli, scale)
    return Trial(
        claim=claim,
        outcome="tested" if trials.is_drawn(own) else "undrawable",
        writer=instruments.writer.name,
        protocol=design.preset,
        stimuli=tuple(stimuli),
        matrix=matrix,
        location=location,
        scale=spread,
        standard=trials.CONTROLS if scale is None else trials.EXEMPLARS,
        detection=_detected(claim, controls, instruments, design),
    )


def _detected(claim: Claim, controls: Controls, instruments: Instruments, design: Design) -> Mapping[str, object]:
    if instruments.judge is None or not instruments.pictures or not design.detect:
        return {}
    labels = [label for label in claim.labels if label.strip()] or [claim.description]
    activations = controls.pool[claim.unit.layer][:, claim.unit.index]

    def probe(pictures: Sequence[Picture]) -> Sequence[Activation]:
        return instruments.target.probe([Probe(unit=claim.unit, picture=picture) for picture in pictures])

    return detect(labels, instruments.pictures, activations, instruments.judge, design.detect, probe)
