"""Prints how the descriptions of a run were tested."""

from openmaia.cli.terminal.output import say
from openmaia.core.text import percent
from openmaia.evaluation.analysis.overlap import run_overlap
from openmaia.runs.run import Run


def show_overlap(run: Run) -> None:
    """Prints how similar the prompts of the test images are to those that the agents used in their investigations.

    Prints nothing if no description was tested with images.
    """
    overlap = run_overlap(run.scores().values())
    if overlap is None:
        return
    say(
        f"test prompts that the agent drew as well: {percent(overlap.exact)}; words shared with its most similar prompt: "
        f"{percent(overlap.words)} (mean Jaccard index)"
    )
    if overlap.incomplete:
        say(f"{overlap.incomplete} of {overlap.trials} units were tested with fewer prompts: the agent drew the others")
