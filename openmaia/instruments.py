"""From a config to what an evaluation works with, and to what trains a classifier."""

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from openmaia import build
from openmaia.evaluate.asking import Asker
from openmaia.evaluate.judges import EyesJudge, Judge, ModelJudge
from openmaia.evaluate.pictures import test_pictures
from openmaia.evaluate.protocol import Design, Instruments
from openmaia.evaluate.run import scales
from openmaia.evaluate.writers import ModelWriter, Preset, PublishedWriter, RuleWriter, Writer
from openmaia.pictures.library import Library
from openmaia.schema import Config
from openmaia.services import Generator, Target
from openmaia.store.exemplars import ExemplarStore

if TYPE_CHECKING:
    from openmaia.training.classifier import Trainable, Trainer


def in_process(config: Config) -> Instruments:
    """Everything in this process; of exemplars what is there already."""
    store = ExemplarStore.at(
        config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
    )
    pictures = build.library(config) if config.evaluate.pictures else None
    return instruments(config, build.generator(config), build.target(config), store, pictures)


def instruments(
    config: Config, made: Generator, read: Target, store: ExemplarStore | None, pictures: Library | None
) -> Instruments:
    """What an evaluation works with; writer and judge are in this process. store, pictures: exemplars and pictures, as far as
    there are any."""
    spoken = asker(config)
    layers = sorted(read.info().layers)
    return Instruments(
        generator=made,
        target=read,
        writer=_writer(config, spoken),
        asker=spoken,
        judge=judge(config, spoken),
        pictures=() if pictures is None else test_pictures(pictures, config.evaluate.pictures, config.generator.size),
        scales={} if store is None else scales(store, read.info(), layers),
    )


def design(config: Config, at_once: int = 1) -> Design:
    asked = config.evaluate
    preset = next(preset for preset in get_args(Preset) if preset == asked.preset)
    return Design(preset=preset, n=asked.n, seed=config.seed, random=asked.n, detect=asked.detect, at_once=at_once)


def asker(config: Config) -> Asker | None:
    """Of evaluate.writer, None where that is no language model."""
    if config.evaluate.writer.kind == "rules":
        return None
    as_backbone = replace(config, backbone=config.evaluate.writer)
    return Asker(build.backbone(as_backbone), build.backbone_name(as_backbone))


def _writer(config: Config, asker: Asker | None) -> Writer:
    match config.evaluate.preset, asker:
        case _, None:
            return RuleWriter()
        case "labels", _:
            return ModelWriter(asker)
        case "paper", _:
            return PublishedWriter(asker, "paper")
        case "repo", _:
            return PublishedWriter(asker, "repo")
        case _:
            return PublishedWriter(asker, "pairing")


def judge(config: Config, model: Asker | None) -> Judge | None:
    """Who says what a picture shows. model: the writer's."""
    if config.evaluate.judge == "auto" and model is not None:
        return ModelJudge(model)
    if config.evaluate.judge == "detector":
        from openmaia.targets.synthetic.judge import DetectorJudge

        return DetectorJudge(config.evaluate.detector, config.evaluate.segmenter)
    is_scripted = config.backbone.kind == "scripted"
    if config.evaluate.judge == "none" or (config.evaluate.judge == "auto" and not is_scripted):
        return None
    from openmaia.backbones.eyes import Eyes
    from openmaia.targets.networks import classifier

    build.refuse_own_eyes(config)
    return EyesJudge(Eyes(classifier(config.backbone.eyes)).see, config.backbone.eyes)


def trainer(config: Config) -> "Trainer":
    """Trains the target's network as a classifier of its own, and reads it."""
    from openmaia.training.classifier import Recipe, Trainer

    def network(weights: str) -> "Trainable":
        found = build.network(config, weights)
        return found.module, lambda pixels: found.preprocess.tensor(found.preprocess.view(pixels)[0])

    asked = config.spurious
    recipe = Recipe(
        epochs=asked.epochs,
        rate=asked.rate,
        weight_decay=asked.weight_decay,
        dropout=asked.dropout,
        batch=asked.batch,
        threads=asked.threads,
    )
    return Trainer(network, recipe)
