"""Collects the answers to requests that were sent together, with what they cost even if one of them failed."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from openmaia.core.errors import OpenMaiaError
from openmaia.core.money import bill_of

AnswerT = TypeVar("AnswerT")


def settle(futures: Sequence[Future[AnswerT]]) -> list[AnswerT]:
    """Returns the answers in the order of the futures.

    Raises the first OpenMaiaError, with the bills of all requests that were sent. Those that have not begun are cancelled.
    """
    try:
        return [future.result() for future in futures]
    except OpenMaiaError as first:
        sent = [future for future in futures if not future.cancel()]
        wait(sent)
        errors = [error for future in sent if (error := future.exception()) is not None and error is not first]
        answers = [future.result() for future in sent if future.exception() is None]
        first.bill += bill_of([*answers, *errors])
        raise
