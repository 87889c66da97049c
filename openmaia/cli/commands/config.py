"""`openmaia config`: what a config says, and what its target has."""

from typing import Annotated

import typer

from openmaia.cli.commands.common import ConfigSources
from openmaia.core.errors import UsageError


def config(
    config: ConfigSources,
    given: Annotated[bool, typer.Option("--given", help="Leave out the keys that have their default.")] = False,
    layers: Annotated[
        bool, typer.Option("--layers", help="Only list the target's layers with their numbers of units.")
    ] = False,
) -> None:
    """Prints the resolved config, or the layers of its target.

    The config is printed as YAML, with where each value comes from: a line of a file, an override or the default.
    --layers marks the layers of target.layers with *. It loads no weights of networks of OpenMAIA, torchvision or timm.

    Examples:

    openmaia config configs/demo.yaml configs/machine/laptop.yaml limits.turns=20 --given

    openmaia config configs/demo.yaml --layers
    """
    if given and layers:
        raise UsageError("--given is for the printed config; leave it out, or leave out --layers")
    if layers:
        _print_layers(config)
        return
    from openmaia.config.loading import load, sweep_sources
    from openmaia.config.origins import explain

    for number, (sources, listing) in enumerate(sweep_sources(config)):
        settings = load(sources, listing)
        if number:
            print("---")
        print("\n".join(explain(settings, sources, only_given=given, listing=listing)))


def _print_layers(sources: list[str]) -> None:
    from openmaia.config.loading import load
    from openmaia.config.sections import site
    from openmaia.core.components import target_class

    settings = load(sources)
    target = target_class(settings.target)
    found, left_out = target.survey(settings.target, site(settings, "target"))
    chosen = target.layers(settings.target)
    width = max((len(layer) for layer in found), default=0)
    for layer, units in found.items():
        print(f"{'*' if layer in chosen else ' '} {layer:<{width}}  {units:>6}")
    if left_out:
        print(f"{len(left_out)} modules have no units, or no unambiguous ones, and are left out")
