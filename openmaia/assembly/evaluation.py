"""Builds the services of an evaluation, and the trainer of classifiers, from a config."""

from typing import TYPE_CHECKING, get_args

from openmaia.agent.patience import PatientBackbone, PatientGenerator
from openmaia.assembly import backbones, datasets, generators, hosts, targets
from openmaia.config.schema import Config, prompt_writer, test_generator
from openmaia.config.sections import site
from openmaia.core.components import BackboneConfig, build, of_config, target_class
from openmaia.core.services import Backbone, Generator, Target
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.agreement import ModelSimilarity, WordOverlap
from openmaia.evaluation.claims import Sharing
from openmaia.evaluation.controls import exemplar_scales, load_photographs, photograph_captions
from openmaia.evaluation.judging.judges import Judge, ModelJudge
from openmaia.evaluation.language_model import LanguageModel
from openmaia.evaluation.prompts import ModelPromptWriter, PromptPreset, PromptWriter, PublishedPromptWriter
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.exemplars.store import ExemplarStore

if TYPE_CHECKING:
    from openmaia.models.training import ClassifierTrainer, Trainable


def in_process(config: Config) -> EvaluationServices:
    """Builds all services of an evaluation, which tests descriptions of units, in this process.

    The mean and standard deviation of each unit's activations are read from its stored exemplars. Missing exemplars are
    not computed.
    """
    store = ExemplarStore.at(
        config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
    )
    dataset = datasets.image_dataset(config) if config.evaluate.pictures else None
    return evaluation_services(
        config, hosts.host("test_generator", config), targets.target(config), store=store, dataset=dataset
    )


def evaluation_services(
    config: Config,
    generator: Generator,
    target: Target,
    *,
    backbone: Backbone | None = None,
    store: ExemplarStore | None = None,
    dataset: ImageDataset | None = None,
) -> EvaluationServices:
    """Returns the services of an evaluation, which tests descriptions of units on generated images.

    The writer of the images' prompts, and the judge, which says what an image shows, are built in this process.

    Args:
        config: The config of the run.
        generator: Makes the test images.
        target: Measures the units on the test images.
        backbone: The model that plays the agent. If it is also the prompt writer of the config, it is not loaded again.
        store: The stored exemplars, from which the mean and standard deviation of each unit's activations are read.
            Only `openmaia.evaluation.controls.prepare_reference` needs it.
        dataset: The images of the run, from which photographs are taken. They serve as control images. They also serve
            for detection, in which a judge marks the photographs that show what a description names, and the marks are
            compared with the activations. Only `prepare_reference` needs the dataset.
    """
    model = language_model(config, backbone)
    count, size = config.evaluate.pictures, test_generator(config).size
    return EvaluationServices(
        generator=PatientGenerator(generator=generator, minutes=config.backbone.outage_minutes),
        target=target,
        writer=_writer(config, model),
        model=model,
        judge=judge(config, model),
        photographs=() if dataset is None else load_photographs(dataset, count, size),
        captions={} if dataset is None else photograph_captions(dataset),
        scales={} if store is None else exemplar_scales(store, target.info()),
        similarities=[_word_overlap(config), *([ModelSimilarity(model)] if model else [])],
        truths=target_class(config.target).truths(config.target, target.info()),
    )


def design(config: Config) -> EvaluationDesign:
    """Returns the evaluation protocol of a config: how test prompts are written, the numbers of images, the seed."""
    settings = config.evaluate
    preset = next(preset for preset in get_args(PromptPreset) if preset == settings.preset)
    return EvaluationDesign(
        preset=preset,
        n=settings.n,
        seed=config.seed,
        looks=tuple(settings.looks),
        random=settings.random,
        sharing=next(sharing for sharing in get_args(Sharing) if sharing == settings.sharing),
        detect=settings.detect,
        random_words=settings.random_words,
        generator=generators.generator_name(test_generator(config)),
    )


def language_model(config: Config, backbone: Backbone | None = None) -> LanguageModel | None:
    """Returns the language model of an evaluation, which writes the prompts of test images and may judge images.

    Returns None if the config names rules, not a model, as the prompt writer.

    Args:
        config: The config of the run.
        backbone: The model that plays the agent. If it is also the prompt writer of the config, it is not loaded again.
    """
    writer = prompt_writer(config)
    if not isinstance(writer, BackboneConfig):
        return None
    section = "backbone" if writer is config.backbone else "evaluate.writer"
    if backbone is None or writer is not config.backbone:
        backbone = backbones.backbone(config, section)
    patient = PatientBackbone(backbone=backbone, minutes=config.backbone.outage_minutes)
    return LanguageModel(patient, backbones.backbone_name(config, section))


def _writer(config: Config, model: LanguageModel | None) -> PromptWriter:
    match config.evaluate.preset, model:
        case _, None:
            return build(prompt_writer(config), site(config, "evaluate.writer"))
        case "labels", _:
            return ModelPromptWriter(model)
        case "paper", _:
            return PublishedPromptWriter(model, "paper")
        case "repo", _:
            return PublishedPromptWriter(model, "repo")
        case _:
            return PublishedPromptWriter(model, "pairing")


def _word_overlap(config: Config) -> WordOverlap:
    terms = getattr(of_config(prompt_writer(config)), "terms", None)
    return WordOverlap(terms) if terms else WordOverlap()


def judge(config: Config, model: LanguageModel | None) -> Judge | None:
    """Returns the judge, which says what an image shows, or None if the config selects none.

    Args:
        config: The config of the run.
        model: The language model that writes test prompts, if there is one. It is the judge if the config names none.
    """
    settings = config.evaluate.judge
    if settings is None and model is not None:
        return ModelJudge(model)
    settings = settings or of_config(config.backbone).judge(config.backbone)
    return None if settings is None else build(settings, site(config, "evaluate.judge"))


def trainer(config: Config) -> "ClassifierTrainer":
    """Returns a trainer that fine-tunes the target network of a config as a classifier.

    The trainer also computes the activations of the classifier's last hidden layer.
    """
    from openmaia.models.training import ClassifierTrainer, Recipe

    def network(weights: str) -> "Trainable":
        built = target_class(config.target).network(config.target, weights)
        return built.module, lambda pixels: built.preprocess.tensor(built.preprocess.view(pixels)[0])

    settings = config.spurious
    recipe = Recipe(
        epochs=settings.epochs,
        rate=settings.rate,
        weight_decay=settings.weight_decay,
        dropout=settings.dropout,
        batch=settings.batch,
        threads=settings.threads,
    )
    return ClassifierTrainer(network, recipe)
