"""`openmaia spurious`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openmaia.commands.common import Config, fail, stoppable
from openmaia.commands.report import write as write_pages

if TYPE_CHECKING:
    from openmaia.schema import Config as Settings
    from openmaia.store.run import Run
    from openmaia.terminal.progress import Terminal


def spurious(config: Config) -> None:
    """Table 2 of the MAIA paper: a classifier learns a spurious feature, an agent says which units follow it, and the
    classifier does without them. Resumes by itself."""
    from openmaia import build
    from openmaia.apps.spurious.drawn import draw, folder
    from openmaia.apps.spurious.page import write
    from openmaia.apps.spurious.study import Instruments, conduct
    from openmaia.apps.spurious.table import table
    from openmaia.config import load
    from openmaia.instruments import trainer
    from openmaia.store.files import Files
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.spurious import show

    settings = load(config)
    asked = settings.spurious
    with stoppable(), Terminal() as terminal:
        root = Path(asked.folder).expanduser()
        if not asked.folder:
            root = folder(settings)
            draw(Files(str(root)), asked, build.generator(settings), partial(terminal.progress, "drawing"))
        use = Instruments(
            trainer=trainer(settings),
            investigate=lambda judging: investigated(judging, terminal),
            target=build.target,
            generator=lambda: build.generator(settings),
            progress=terminal.progress,
        )
        outcomes = [conduct(settings, root, seed, use) for seed in range(asked.seeds)]
        found = table(outcomes, asked.units)
    page = write(
        Files(f"{settings.paths.runs}/{settings.name}"), settings, found, outcomes, build.backbone_name(settings)
    )
    show(found)
    print(f"report: {page}")
    if failed := sum(len(one.verdicts.failed) for one in outcomes):
        fail(f"{failed} units could not be judged, and count as not kept; the same command tries them again", 1)


def investigated(judging: "Settings", terminal: "Terminal") -> "Run":
    """Every unit judged, with a page for each conversation."""
    from openmaia.remote.sweep import sweep

    run = sweep(judging, terminal).run
    write_pages([run.files.root])
    return run
