"""The cost of calls of a language model on a server, from the tokens that the server counts."""

import threading

from openmaia.core.messages import Reply
from openmaia.core.money import FREE, Bill
from openmaia.models.backbones.served import ChatServerConfig


class CallBill:
    """Adds up what the requests of one call cost, those that failed and were repeated included. Each thread has its own."""

    def __init__(self, config: ChatServerConfig):
        self._config = config
        self._own = threading.local()

    @property
    def total(self) -> Bill:
        """The cost since `begin`."""
        return getattr(self._own, "total", FREE)

    def begin(self) -> None:
        """Begins a call."""
        self._own.total = FREE

    def add(self, reply: Reply) -> None:
        """Adds a reply whose tokens are known."""
        prices = (self._config.input_price, self._config.output_price)
        if None in prices or (any(prices) and not reply.prompt_tokens):
            self.add_unknown()
        else:
            self._own.total = self.total + Bill(cost(reply, self._config))

    def add_unknown(self) -> None:
        """Adds a request that was probably billed, without a count of its tokens."""
        if (self._config.input_price, self._config.output_price) != (0, 0):
            self._own.total = self.total + Bill(unpriced=1)


def cost(reply: Reply, config: ChatServerConfig) -> float:
    """Returns the cost of a reply in US dollars: tokens times their prices. Input and output need a price."""
    entered, generated = config.input_price or 0.0, config.output_price or 0.0
    cached, written = (entered if p is None else p for p in (config.cached_price, config.written_price))
    fresh = max(reply.prompt_tokens - reply.cached_tokens - reply.written_tokens, 0)
    total = fresh * entered + reply.cached_tokens * cached + reply.written_tokens * written
    return (total + reply.generated_tokens * generated) / 1_000_000
