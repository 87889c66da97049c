"""Records what the services of this process cost. Those on Ray are recorded by the handles of their pools."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from openmaia.core.errors import OpenMaiaError
from openmaia.core.messages import is_turn, waited_for
from openmaia.core.money import bill_of
from openmaia.core.services import UsageLedger

ServiceT = TypeVar("ServiceT")


def metered(service: ServiceT, name: str, ledger: UsageLedger, gpus: float) -> ServiceT:
    """Wraps a service, whose methods take one list of requests or nothing, so that a ledger gets the requests and the
    duration of each call. `gpus` are reserved for the service.
    """
    return cast(ServiceT, _Metered(service, name, ledger, gpus))


class _Metered:
    def __init__(self, service: Any, name: str, ledger: UsageLedger, gpus: float):
        self._service, self._name, self._ledger, self._gpus = service, name, ledger, gpus

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(self._service, name)
        if not callable(found):  # such as the names of a network's classes
            return found
        call = cast("Callable[..., Any]", found)

        def timed(*requests: Sequence[Any]) -> Any:
            started = time.monotonic()
            if requests and not is_turn(requests[0]):
                self._ledger.require(self._name)
            try:
                answer = call(*requests)
            except OpenMaiaError as error:
                if bill := error.bill + bill_of(error.answers.values()):
                    self._ledger.add(self._name, len(error.answers), 0.0, 0.0, bill)
                raise
            if requests:  # `Target.info` takes none and costs nothing
                seconds = max(time.monotonic() - started - waited_for(answer), 0.0)
                self._ledger.add(self._name, len(requests[0]), seconds, self._gpus, bill_of(answer))
            return answer

        return timed
