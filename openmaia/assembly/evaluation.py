"""Builds the services of tests, and the trainer of classifiers, from a config."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from openmaia.agent.metering import metered
from openmaia.agent.patience import PatientBackbone, PatientGenerator
from openmaia.assembly import backbones, datasets, generators, hosts, targets
from openmaia.assembly.investigations import command_ledger
from openmaia.config.schema import Config, prompt_writer, test_generator
from openmaia.config.sections import site
from openmaia.core.components import BackboneConfig, build, of_config, target_class
from openmaia.core.services import Backbone, Exemplars, Generator, Target, UsageLedger
from openmaia.core.units import TargetInfo
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.analysis.agreement import ClaimSimilarity, ModelSimilarity, WordOverlap
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.controls import exemplar_scales, load_photographs, picture_captions
from openmaia.evaluation.judging.judges import Judge, ModelJudge
from openmaia.evaluation.language_model import LanguageModel
from openmaia.evaluation.prompts import ModelPromptWriter, PromptPreset, PromptWriter, PublishedPromptWriter
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.together import one_at_a_time
from openmaia.evaluation.truth import KnownTruths
from openmaia.exemplars.bank_prompts import list_prompts
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.models.training import ClassifierTrainer, Trainable

_BATCHED = 256
"""Descriptions whose tests run at the same time if a language model answers in batches."""


def in_process(config: Config, run: Run | None = None) -> EvaluationServices:
    """Builds all services of tests in this process. Missing exemplars are not computed. The budget of `run` pays for them."""
    store = ExemplarStore.at(
        config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
    )
    dataset = datasets.image_dataset(config) if config.evaluate.pictures else None
    generator, target = hosts.host("test_generator", config), targets.target(config)
    own: Backbone | None = None
    if run is not None:
        ledger = command_ledger(run, config)
        gpus, own = config.pools, own_model(config, run, ledger)
        generator = metered(generator, "generator", ledger, gpus.generator.num_gpus)
        target = metered(target, "target", ledger, gpus.target.num_gpus)
    if not getattr(config.evaluate.writer, "batch", False):
        return evaluation_services(config, generator, target, backbone=own, writer=own, store=store, dataset=dataset)
    lock = threading.Lock()
    generator, target = one_at_a_time(generator, lock), one_at_a_time(target, lock)
    judged = component_judge(config)
    services = evaluation_services(
        config,
        generator,
        target,
        backbone=own,
        writer=own,
        own_judge=None if judged is None else one_at_a_time(judged, lock),
        exemplars=one_at_a_time(store, lock),
        store=store,
        dataset=dataset,
    )
    seen = services.pictures_judge
    return replace(services, at_once=_BATCHED, pictures_judge=None if seen is None else one_at_a_time(seen, lock))


def evaluation_services(
    config: Config,
    generator: Generator,
    target: Target,
    *,
    backbone: Backbone | None = None,
    writer: Backbone | None = None,
    own_judge: Judge | None = None,
    exemplars: Exemplars | None = None,
    store: ExemplarStore | None = None,
    dataset: ImageDataset | None = None,
) -> EvaluationServices:
    """Returns the services of tests. Models that are needed and not given are loaded in this process.

    Args:
        backbone: The agent's, which is also the prompt writer of the config if that names no other.
        writer: The language model of `evaluate.writer`.
        own_judge: The judge, if it is no language model.
        exemplars: In which labels are looked for. None: `store`.
        store: Has the mean and standard deviation of each unit's activations. None: only what the test of one
            description uses is returned, without photographs and what measures whole runs.
        dataset: Has the photographs, for controls and for detection, in which a judge marks those that show what a
            description names.
    """
    model = language_model(config, backbone, writer)
    count, size = config.evaluate.pictures, test_generator(config).size
    services = EvaluationServices(
        generator=PatientGenerator(generator=generator, minutes=config.backbone.outage_minutes),
        target=target,
        writer=_writer(config, model),
        model=model,
        judge=judge(config, model) if own_judge is None else own_judge,
        pictures_judge=_pictures_judge(config),
        exemplars=exemplars or store,
    )
    if store is None:
        return services
    similarities, truths = comparison(config, model, target.info())
    return replace(
        services,
        photographs=() if dataset is None else load_photographs(dataset, count, size),
        captions={} if dataset is None else picture_captions(dataset),
        scales=exemplar_scales(store, target.info()),
        similarities=similarities,
        truths=truths,
    )


def comparison(
    config: Config, model: LanguageModel | None, info: TargetInfo
) -> tuple[Sequence[ClaimSimilarity], KnownTruths]:
    """Returns by what claims are compared, and what the units of the target are known to respond to.

    `model` is the language model that compares them, too.
    """
    similarities = [_word_overlap(config), *([ModelSimilarity(model)] if model else [])]
    return similarities, target_class(config.target).truths(config.target, info)


def design(config: Config) -> EvaluationDesign:
    """Returns the settings of tests."""
    settings = config.evaluate
    preset = next(preset for preset in get_args(PromptPreset) if preset == settings.preset)
    return EvaluationDesign(
        preset=preset,
        n=settings.n,
        seed=config.seed,
        looks=tuple(settings.looks),
        random=settings.random,
        sharing=settings.sharing,
        detect=settings.detect,
        random_words=settings.random_words,
        generator=generators.generator_name(test_generator(config)),
        withheld=explored(list_prompts(config)) if config.bank.images and not config.bank.folder else frozenset(),
    )


def language_model(
    config: Config, backbone: Backbone | None = None, writer: Backbone | None = None
) -> LanguageModel | None:
    """Returns the language model that writes test prompts and may judge images; None if rules write them. The model of
    the section `backbone` or `evaluate.writer` is not loaded again if it is given."""
    chosen = prompt_writer(config)
    if not isinstance(chosen, BackboneConfig):
        return None
    section, given = ("backbone", backbone) if chosen is config.backbone else ("evaluate.writer", writer)
    loaded = backbones.backbone(config, section) if given is None else given
    patient = PatientBackbone(backbone=loaded, minutes=config.backbone.outage_minutes)
    return LanguageModel(patient, backbones.backbone_name(config, section))


def own_model(config: Config, run: Run, ledger: UsageLedger) -> Backbone | None:
    """Loads the language model of `language_model` in this process. `ledger` gets what it costs."""
    chosen = prompt_writer(config)
    if not isinstance(chosen, BackboneConfig):
        return None
    section = "backbone" if chosen is config.backbone else "evaluate.writer"
    return metered(backbones.backbone(config, section, run), "backbone", ledger, config.pools.backbone.num_gpus)


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
    """Returns the judge of a config: by default the language model that writes test prompts. None: there is none."""
    if config.evaluate.judge is None and model is not None:
        return ModelJudge(model)
    return component_judge(config)


def component_judge(config: Config) -> Judge | None:
    """Returns the judge of a config that is no language model. None: there is none."""
    if config.evaluate.judge is None and isinstance(prompt_writer(config), BackboneConfig):
        return None
    settings = config.evaluate.judge or of_config(config.backbone).judge(config.backbone)
    return None if settings is None else build(settings, site(config, "evaluate.judge"))


def _pictures_judge(config: Config) -> Judge | None:
    settings = of_config(config.pictures).judge(config.pictures)
    return None if settings is None else build(settings, site(config, "pictures"))


def trainer(config: Config) -> "ClassifierTrainer":
    """Returns what fine-tunes the target as a classifier, and reads its last hidden layer."""
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
