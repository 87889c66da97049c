"""`openmaia configs` and `openmaia demo`: what comes with the program."""

import shutil
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from openmaia.core.errors import UsageError


def configs(
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Configs to copy. Without any: all.")] = None,
    to: Annotated[str, typer.Option(help="Copy into this folder, as files to change. Existing files stay.")] = "",
) -> None:
    """Lists the configs that come with the program, or copies them.

    Wherever a command takes a config, it takes the name of one of these, the path of a file, or several that stack.

    Examples:

    openmaia configs

    openmaia configs resnet152 gemma3-27b --to my-configs
    """
    from openmaia.config.named import find_shipped, shipped_configs

    chosen = [find_shipped(each) for each in name] if name else [*shipped_configs().values()]
    if not to:
        if name:
            raise UsageError("give --to=FOLDER to copy configs; `openmaia config NAME` prints what one says")
        _print_list(chosen)
        return
    from openmaia.core.paths import user_path

    copies = {user_path(to) / path.name: path for path in chosen}
    if existing := [str(copy) for copy in copies if copy.exists()]:
        raise UsageError(f"{', '.join(existing)}: exists already; give another folder, or move it away")
    try:
        user_path(to).mkdir(parents=True, exist_ok=True)
        for copy, path in copies.items():
            shutil.copyfile(path, copy)
            print(copy)
    except OSError as error:
        raise UsageError(f"--to={to}: {error.strerror}") from None


def _print_list(paths: Iterable[Path]) -> None:
    from openmaia.cli.terminal.output import say, show_table
    from openmaia.config.named import summarize

    for folder, members in groupby(paths, lambda path: path.parent.name):
        title = "configs" if folder == "configs" else f"configs of {folder}"
        show_table(title, ("name", "what it is"), [(path.stem, summarize(path)) for path in members], left=2)
    say("`openmaia config NAME` prints one, and `openmaia run NAME…` runs several as one: later ones win")


def demo() -> None:
    """Runs the demo, on two networks and without a GPU.

    It describes units of a network that learned drawn scenes, then of one that saw ImageNet. The second run needs pictures and weights from packages, and is left out where they cannot be had. Continues what was stopped.

    Example: openmaia demo
    """
    from openmaia.cli.commands.run import run

    run(["demo"])
    try:
        run(["efficientnet-lite0"])
    except UsageError as error:
        from openmaia.core.text import first_line

        print(f"left out: the run on a network that saw ImageNet: {first_line(error.message)}")
    print("next: open a report in a browser, or `openmaia view runs/demo --live` to try a picture of yours, or")
    print('      `openmaia ask runs/demo "which units respond to mountains?"`')
