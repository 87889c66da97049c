"""Builds the image generator and the image editor of a config."""

from openmaia.agent.vocabulary import Vocabulary
from openmaia.cli.assembly.datasets import image_dataset
from openmaia.cli.assembly.errors import unknown_value
from openmaia.config.models import GeneratorConfig
from openmaia.config.schema import Config
from openmaia.core.paths import user_path
from openmaia.core.services import Editor, Generator
from openmaia.datasets.library import ImageDataset


def generator(config: Config) -> Generator:
    """Creates the image generator that the config section `generator` describes."""
    match config.generator.kind:
        case "collage":
            from openmaia.offline.collage import CollageGenerator

            return CollageGenerator(_collage_parts(config), config.generator.size)
        case "diffusers":
            from openmaia.models.generators.generator import DiffusionGenerator

            return DiffusionGenerator(config.generator.diffusion, config.generator.size)
        case "openai":
            from openmaia.models.generators.images_api import ApiGenerator

            return ApiGenerator(config.generator.api, config.generator.size)
        case kind:
            raise unknown_value("generator.kind", kind)


def vocabulary(config: Config) -> Vocabulary | None:
    """Returns the words that the image generator of a config can draw, without loading it. None: it draws anything."""
    if config.generator.kind != "collage":
        return None
    from openmaia.offline.collage import CollageGenerator

    return CollageGenerator.vocabulary


def editor(config: Config) -> Editor:
    """Creates the image editor that the config section `editor` describes."""
    match config.editor.kind:
        case "collage":
            from openmaia.offline.collage import CollageEditor

            return CollageEditor(_collage_parts(config), config.generator.size)
        case "diffusers":
            from openmaia.models.generators.editor import DiffusionEditor

            return DiffusionEditor(config.editor.diffusion)
        case "openai":
            from openmaia.models.generators.images_api import ApiEditor

            return ApiEditor(config.editor.api)
        case kind:
            raise unknown_value("editor.kind", kind)


def generator_name(settings: GeneratorConfig) -> str:
    """Returns the name of an image generator for results.

    It is the name of its model, or its kind (such as `collage`) if it works without a model.
    """
    models = {"diffusers": settings.diffusion.model, "openai": settings.api.model}
    return models.get(settings.kind, settings.kind)


def _collage_parts(config: Config) -> ImageDataset:
    """Returns the image dataset from whose objects and textures collages are composed."""
    if config.generator.parts == "pictures":
        return image_dataset(config)
    from openmaia.offline.packaged.library import fetch

    return ImageDataset.open(fetch(user_path(config.paths.cache), lambda line: None))
