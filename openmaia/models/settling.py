"""Collects the answers to requests that were sent together, even if one of them failed."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from openmaia.core.errors import OpenMaiaError
from openmaia.core.money import bill_of

AnswerT = TypeVar("AnswerT")


def settle(futures: Sequence[Future[AnswerT]]) -> list[AnswerT]:
    """Returns the answers in the order of the futures.

    Raises the first OpenMaiaError, with the answers to the others and the bills of all that failed. Those that have not
    begun are cancelled.
    """
    try:
        return [future.result() for future in futures]
    except OpenMaiaError as first:
        sent = {number: future for number, future in enumerate(futures) if not future.cancel()}
        wait(sent.values())
        errors = {number: error for number, future in sent.items() if (error := future.exception()) is not None}
        first.bill += bill_of(error for error in errors.values() if error is not first)
        first.answers = {number: future.result() for number, future in sent.items() if number not in errors}
        raise
