"""How a run's descriptions stood the tests, as a table of means with their intervals."""

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from openmaia.evaluate.run import pooled
from openmaia.evaluate.sanity import warning
from openmaia.store.run import Run
from openmaia.terminal.progress import console

SHOWN = {
    "auc": "AUC, own images against matched neutral ones",
    "auc_other": "AUC, images of other units of the layer",
    "auc_minus_other": "difference of the two",
    "auc_worst": "AUC of each unit's worst label",
    "z_difference": "mean difference, in standard deviations",
    "difference": "mean difference, raw activations",
    "z_d": "Cohen's d",
    "z_mad": "MAD, as CoSy",
    "top1": "identification: unit highest of its layer",
    "top5": "identification: among the five highest",
}


def show_evaluation(run: Run, resamples: int) -> None:
    found = pooled(run, resamples)
    if not found.units:
        return
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found.outcomes.items())
    shown = Table(
        title=f"evaluation of {escape(run.name)}: {outcomes}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name, justify in (("", "left"), ("mean", "right"), ("95 % interval", "right"), ("", "left")):
        shown.add_column(name, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    for name, what in SHOWN.items():
        one = found.measures[name]
        if one.mean == one.mean:
            shown.add_row(what, f"{one.mean:.3f}", f"{one.low:.3f} to {one.high:.3f}", warning(name))
    console.print(shown)
    chance = found.measures["chance"].mean
    if chance == chance:
        console.print(f"identification by chance: {chance:.4f} for the highest", highlight=False)
    if found.found is not None:
        console.print(
            f"descriptions that tell images apart, at a false discovery rate of 5 %: {found.found:.0%}", highlight=False
        )
    console.print("intervals: bootstrap over prompts and units, crossed", highlight=False, style="dim")
