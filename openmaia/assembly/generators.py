"""Builds the components of a config."""

from functools import partial
from operator import attrgetter
from typing import Any, cast

from openmaia.agent.vocabulary import Vocabulary
from openmaia.assembly.datasets import image_dataset
from openmaia.config.schema import Config, pools_by_role
from openmaia.config.sections import site
from openmaia.core.components import GeneratorConfig, build, of_config
from openmaia.core.services import Editor, Generator


def build_section(config: Config, section: str) -> Any:
    """Loads the component of a section, such as "evaluate.generator"."""
    return build(attrgetter(section)(config), site(config, section, partial(image_dataset, config)))


def generator(config: Config) -> Generator:
    """Loads the generator of a config. It is prepared for editing if it is the editor, too."""
    made = build_section(config, "generator")
    if pools_by_role(config)["editor"] == "generator":
        made.prepare_edits()
    return made


def test_generator(config: Config) -> Generator:
    """Loads the generator of the test images of a config."""
    return build_section(config, "evaluate.generator" if config.evaluate.generator else "generator")


def editor(config: Config, drawing: Generator) -> Editor:
    """Loads the editor of a config; `drawing` is its generator, which may be the editor, too."""
    is_one = pools_by_role(config)["editor"] == "generator"
    return cast(Editor, drawing) if is_one else build_section(config, "editor")


def vocabulary(config: Config) -> Vocabulary | None:
    """Returns the words that the generator can draw, without loading it. None: it draws anything."""
    return of_config(config.generator, "generator").vocabulary(config.generator)


def generator_name(settings: GeneratorConfig) -> str:
    """Returns the name of a generator for results."""
    return of_config(settings).title(settings)
