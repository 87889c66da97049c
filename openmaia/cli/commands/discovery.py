"""`openmaia config` and `openmaia layers`: what a config says, and what its target has."""

from typing import Annotated

import typer

from openmaia.cli.commands.common import ConfigSources


def config(
    config: ConfigSources,
    given: Annotated[bool, typer.Option("--given", help="Leave out the keys that have their default.")] = False,
) -> None:
    """Prints the resolved config as YAML, with where each value comes from: a line of a file, an override or the default.

    Example: openmaia config configs/demo.yaml configs/machine/laptop.yaml limits.turns=20 --given
    """
    from openmaia.config.loading import load, sweep_sources
    from openmaia.config.origins import explain

    for number, (sources, listing) in enumerate(sweep_sources(config)):
        settings = load(sources, listing)
        if number:
            print("---")
        print("\n".join(explain(settings, sources, only_given=given, listing=listing)))


def layers(config: ConfigSources) -> None:
    """Lists the layers of a config's target with their numbers of units. Those of target.layers are marked with *.

    The weights of a network of OpenMAIA, torchvision or timm are not loaded.

    Example: openmaia layers configs/demo.yaml
    """
    from openmaia.config.loading import load
    from openmaia.config.sections import site
    from openmaia.core.components import target_class

    settings = load(config)
    target = target_class(settings.target)
    found, left_out = target.survey(settings.target, site(settings, "target"))
    chosen = target.layers(settings.target)
    width = max((len(layer) for layer in found), default=0)
    for layer, units in found.items():
        print(f"{'*' if layer in chosen else ' '} {layer:<{width}}  {units:>6}")
    if left_out:
        print(f"{len(left_out)} modules have no units, or no unambiguous ones, and are left out")
