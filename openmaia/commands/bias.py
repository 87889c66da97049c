"""`openmaia bias`."""

import sys

from openmaia.commands.common import Config, stoppable
from openmaia.commands.report import write


def bias(config: Config) -> None:
    """Contexts in which a classifier scores a class higher or lower: claimed by the agent, tested on matched pictures, with
    the failure modes that follow. Name classes as units=output=pig,strawberry. Resumes by itself."""
    with stoppable():
        if _bias(config):
            raise SystemExit(1)


def _bias(config: list[str]) -> bool:
    """Whether anything failed."""
    from openmaia.biases import checked, design
    from openmaia.config import load

    settings = checked(load(["task.name=bias", *config]))
    from openmaia.apps.bias.pages import write_pages
    from openmaia.apps.bias.run import judged
    from openmaia.remote.bias import bias as tested
    from openmaia.terminal.biases import show_biases
    from openmaia.terminal.progress import Terminal

    with Terminal() as terminal:
        outcome = tested(settings, terminal)
        terminal.say("everything was done already" if outcome.was_complete else f"{outcome.done} investigations done")
    found = judged(outcome.run, design(settings))
    write_pages(outcome.run, found)
    show_biases(found, outcome.run)
    for owed, cause in outcome.failed.items():
        print(f"failed: {owed.unit}: {cause.splitlines()[0]}", file=sys.stderr)
    print(f"report: {write([outcome.run.files.root])}")
    return bool(outcome.failed)
