"""The orders that pages of `openmaia view --control` give: POST /control.

Threat model. Who knows the token may pause, resume and stop the runs that are shown, and repeat their units: what whoever
started the server may do. Nothing else is written, and a request names no file. Pages of other sites may not
(`openmaia.reporting.browser.guard`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from openmaia.core.errors import OpenMaiaError, UsageError
from openmaia.core.typed import find_mistyped
from openmaia.reporting.browser.guard import RequestRefused, check_origin, read_json
from openmaia.runs import control
from openmaia.runs.run import Run

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
        run = named.get(order.run)
        if run is None:
            raise UsageError("this server does not show such a run")
        if order.action == "retry":
            control.retry(run, control.find_investigation(run, order.unit))
        elif order.action in _ACTIONS and not order.unit:
            _ACTIONS[order.action](run)
        else:
            raise UsageError(f"expected pause, resume or stop without a unit, or retry with one; given {order.action}")

    async def answer(request: Request) -> JSONResponse:
        try:
            check_origin(request)
            order = await _read(request)
            await run_in_threadpool(obey, order)  # the lease of a driver elsewhere may have to be watched
        except RequestRefused as error:
            return JSONResponse({"error": str(error)}, error.status, dict(headers))
        except UsageError as error:
            return JSONResponse({"error": error.message}, 409, dict(headers))
        except OpenMaiaError as error:
            return JSONResponse({"error": error.message}, 500, dict(headers))
        return JSONResponse({}, 200, dict(headers))

    return Route("/control", answer, methods=["POST"])


async def _read(request: Request) -> PageOrder:
    expected = "expected a JSON object with the texts run, action and unit"
    values = await read_json(request, _LARGEST, expected)
    if find_mistyped(values, PageOrder) is not None:
        raise RequestRefused(400, expected)
    return PageOrder(**values)
