"""`openmaia evaluate`."""

from openmaia.commands.common import Runs, stoppable


def evaluate(runs: Runs) -> None:
    """The predictive protocol on finished runs, in this process."""
    from openmaia import build
    from openmaia.config import load
    from openmaia.evaluate.run import evaluate as evaluate_run
    from openmaia.schema import Config as Settings
    from openmaia.store.run import Run
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.tables import table

    for path in runs:
        opened = Run.open(path)
        settings: Settings = load([f"{path}/config.yaml"])
        with stoppable(), Terminal() as terminal:
            evaluate_run(
                opened,
                build.generator(settings),
                build.target(settings),
                n=settings.evaluate.n,
                seed=settings.seed,
                progress=lambda done, total, t=terminal: t.progress("evaluation", done, total),
            )
        opened.write_summary()
        table(opened, settings.evaluate.bootstrap)
