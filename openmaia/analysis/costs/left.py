"""What is left of a run whose budget is spent, and what it would cost."""

from dataclasses import dataclass

from openmaia.core.money import Bill
from openmaia.evaluation.run import untested_claims
from openmaia.runs.purse import read_spending
from openmaia.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLeft:
    """The state of a run in which a budget is set."""

    budget: float
    spent: Bill
    done: int
    """Number of finished investigations."""
    pending: int
    untested: int
    """Number of finished investigations whose description is not tested."""

    @property
    def cost(self) -> float | None:
        """Dollars for the pending investigations, as much for each as was spent for a finished one so far, with tests and
        failures. None if none is finished."""
        return self.pending * self.spent.dollars / self.done if self.done else None

    @property
    def words(self) -> str:
        """What is left, what it would cost, and what to do."""
        cost = "at an unknown cost, as none is finished" if self.cost is None else f"for about ${self.cost:,.2f} more"
        untested = f", and {self.untested} descriptions are not tested" if self.untested else ""
        return (
            f"budget spent: {self.spent.words} of budget={self.budget:g}. {self.pending} of {self.done + self.pending} "
            f"investigations are left, {cost} by what each took so far{untested}. The same with a larger budget continues"
        )


def find_left(run: Run, budget: float, *, is_tested: bool) -> WorkLeft:
    """Counts what is left of a run. `is_tested`: whether its descriptions are tested."""
    return WorkLeft(
        budget=budget,
        spent=read_spending(run),
        done=len(run.done()),
        pending=len(run.pending()),
        untested=len(untested_claims(run)) if is_tested else 0,
    )
