"""Records what the services of this process cost. Those on Ray are recorded by the handles of their pools."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

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

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._service, method)

        def timed(*requests: Sequence[Any]) -> Any:
            started = time.monotonic()
            answer = call(*requests)
            if requests:  # `Target.info` takes none and costs nothing
                self._ledger.add(self._name, len(requests[0]), time.monotonic() - started, self._gpus)
            return answer

        return timed
