"""`openmaia evaluate`."""

from openmaia.commands.common import Runs, stoppable
from openmaia.errors import UsageError


def evaluate(runs: Runs) -> None:
    """The predictive protocol and its companions on finished runs, in this process."""
    from openmaia.config import load
    from openmaia.evaluate.run import evaluate as evaluate_run
    from openmaia.instruments import design, in_process
    from openmaia.schema import Config as Settings
    from openmaia.store.run import Run
    from openmaia.terminal.evaluation import show_evaluation
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.reliability import show_reliability
    from openmaia.terminal.tables import table

    for path in runs:
        opened = Run.open(path)
        settings: Settings = load([f"{path}/config.yaml"])
        if not opened.done():
            raise UsageError(
                f"{path} holds no finished investigation, so that there is no description to evaluate; "
                "openmaia run makes them"
            )
        with stoppable(), Terminal() as terminal:
            evaluate_run(
                opened,
                in_process(settings),
                design(settings),
                lambda done, total, t=terminal: t.progress("evaluation", done, total),
            )
        opened.write_summary()
        table(opened, settings.evaluate.bootstrap)
        show_evaluation(opened, settings.evaluate.bootstrap)
        show_reliability(opened)
