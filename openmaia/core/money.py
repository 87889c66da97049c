"""What calls of services cost, and the account that pays them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of some requests."""

    dollars: float = 0.0
    """US dollars."""
    unpriced: int = 0
    """Number of requests that cost something that is not known: no price is known, or the server did not say what it counted."""

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(self.dollars + other.dollars, self.unpriced + other.unpriced)

    def __bool__(self) -> bool:
        return self.dollars > 0 or self.unpriced > 0

    def shared(self, among: int) -> "Bill":
        """Returns the share of each of so many payers. Requests of unknown cost count for each."""
        return Bill(self.dollars / among, self.unpriced)

    @property
    def words(self) -> str:
        """Such as "$1.20" or "$0.0042 and 3 calls of unknown cost"."""
        amount = f"${self.dollars:,.2f}" if self.dollars >= 1 else f"${self.dollars:.4f}"
        if not self.unpriced:
            return amount
        return f"{amount} and {self.unpriced:,} call{'s' * (self.unpriced > 1)} of unknown cost"


FREE = Bill()


def bill_of(values: Iterable[Any]) -> Bill:
    """Sums the bills of replies and images. Other answers are free."""
    return sum((getattr(value, "bill", FREE) for value in values), FREE)


class Account(Protocol):
    """Pays the calls of one investigation, or of the test of one description, from the budget of its run."""

    def pay(self, bill: Bill) -> None:
        """Takes note of a bill. Calls under way are paid even if the budget is spent."""
        ...

    def may_go_on(self, reserve: float) -> bool:
        """Returns whether the budget pays for more than the last turns of all investigations that are under way.

        `reserve` are the dollars that this investigation needs for its last turn.
        """
        ...

    def is_empty(self) -> bool:
        """Returns whether the budget is spent, so that no call that costs something may begin."""
        ...


class FreeAccount:
    """Pays anything and keeps no account."""

    def pay(self, bill: Bill) -> None:
        """Does nothing."""

    def may_go_on(self, reserve: float) -> bool:
        """Returns True."""
        return True

    def is_empty(self) -> bool:
        """Returns False."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentTerms:
    """Who pays the calls of an investigation, and what for."""

    account: Account = field(default_factory=FreeAccount)
    gpu_hour: float = 0.0
    """US dollars for an hour of a GPU."""
    paid: frozenset[str] = frozenset()
    """The services that cost something."""


class Purse(Protocol):
    """The budget of a run."""

    def terms(self, caller: str) -> PaymentTerms:
        """Returns the terms of one investigation or test. Its name is unique among all attempts."""
        ...

    def leave(self, caller: str) -> None:
        """Says that an investigation or a test has ended."""
        ...

    def may_begin(self) -> bool:
        """Returns whether a further investigation may begin."""
        ...
