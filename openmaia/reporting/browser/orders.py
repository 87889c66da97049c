"""The orders that pages of `openmaia view --control` give: POST /control.

Threat model. Who knows the token may pause, resume and stop the runs that are shown, and repeat their units: what whoever
started the server may do. Nothing else is written, and a request names no file. Pages of other sites may not
(`openmaia.reporting.browser.guard`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.core.typed import find_mistyped
from openmaia.reporting.browser.guard import RequestRefused, check_origin, read_json
from openmaia.runs import control
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Order = TypeVar("_Order", bound="DataclassInstance")

_LARGEST = 2_000
"""Size of a request in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOrder:
    """The JSON object that a page sends."""

    run: str
    """The name of the run in the report."""
    action: str
    unit: str
    """For `retry`, see `openmaia.runs.control.find_investigation`; empty for others."""


_ACTIONS: Mapping[str, Callable[[Run], None]] = {
    "pause": control.pause,
    "resume": control.resume,
    "stop": control.stop,
}


def make_control_route(runs: Sequence[tuple[Run, str]], headers: Mapping[str, str]) -> Route:
    """Returns the route that takes orders to these runs, each with its name in the report."""
    named = {name: run for run, name in runs}

    def obey(order: PageOrder) -> None:
        run = find_run(named, order.run)
        if order.action == "retry":
            control.retry(run, control.find_investigation(run, order.unit))
        elif order.action in _ACTIONS and not order.unit:
            _ACTIONS[order.action](run)
        else:
            raise UsageError(f"expected pause, resume or stop without a unit, or retry with one; given {order.action}")

    return make_order_route("/control", PageOrder, obey, headers)


def find_run(named: Mapping[str, Run], name: str) -> Run:
    """Returns the run of a name in the report. Raises UsageError."""
    run = named.get(name)
    if run is None:
        raise UsageError("this server does not show such a run")
    return run


def make_order_route(
    address: str, kind: type[_Order], obey: Callable[[_Order], None], headers: Mapping[str, str]
) -> Route:
    """Returns a route that takes JSON objects with the fields of a dataclass and does what they say.

    The answer has the status 200, or another one and the key `error`.
    """
    expected = f"expected a JSON object with the texts {', '.join(field.name for field in fields(kind))}"

    async def answer(request: Request) -> JSONResponse:
        try:
            check_origin(request)
            values = await read_json(request, _LARGEST, expected)
            if find_mistyped(values, kind) is not None:
                raise RequestRefused(400, expected)
            await run_in_threadpool(obey, kind(**values))  # the lease of a driver elsewhere may have to be watched
        except RequestRefused as error:
            return JSONResponse({"error": str(error)}, error.status, dict(headers))
        except UsageError as error:
            return JSONResponse({"error": error.message}, 409, dict(headers))
        except OpenMaiaError as error:
            return JSONResponse({"error": error.message}, 500, dict(headers))
        return JSONResponse({}, 200, dict(headers))

    return Route(address, answer, methods=["POST"])
