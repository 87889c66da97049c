"""Records the cost of services (the models that an investigation calls) that run in this process.

For services that run on Ray, the handles to the pools of replicas record it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from openmaia.core.services import UsageLedger

ServiceT = TypeVar("ServiceT")


def metered(service: ServiceT, name: str, ledger: UsageLedger, gpus: float) -> ServiceT:
    """Wraps a service so that the requests and the duration of each call are added to a ledger.

    Args:
        service: The service. Each of its methods takes one list of requests or nothing.
        name: The name of the service in the ledger.
        ledger: Adds up the cost of one investigation.
        gpus: The number of GPUs that are reserved for the service.
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
