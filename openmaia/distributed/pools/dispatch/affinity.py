"""Routes all requests of a conversation to one replica, whose KV cache holds the prefix of the conversation."""

from collections import Counter

from openmaia.distributed.pools.dispatch.queueing import QueuedRequest


class AffinityRouter:
    """Assigns each conversation with a language model to one replica, whose KV cache holds its prefix.

    A new conversation is assigned to the least loaded replica. It moves only if its replica is removed, or to balance
    the load after a replica was added.
    """

    def __init__(self) -> None:
        self._replica_of: dict[str, int] = {}
        self._open: Counter[str] = Counter()
        self._conversations: dict[str, set[str]] = {}
        self._load: dict[int, list[int]] = {}
        """For each replica: the number of open requests and the number of conversations."""

    def add_replica(self, replica: int) -> None:
        """Adds a replica and moves conversations to it until the replicas are balanced.

        The new replica has to process the prefix of each moved conversation once.
        """
        self._load[replica] = [0, 0]
        for conversation in {c for known in self._conversations.values() for c in known} - self._replica_of.keys():
            self._assign(conversation)
        while True:
            busiest = max(self._load, key=lambda other: self._load[other][1])
            if self._load[busiest][1] < self._load[replica][1] + 2:
                return
            conversation = next(c for c, index in self._replica_of.items() if index == busiest)
            self._release(conversation)
            self._assign(conversation, replica)

    def remove_replica(self, replica: int) -> None:
        """Removes a replica and assigns its conversations to the others. Does nothing if the replica is unknown."""
        if replica not in self._load:
            return
        leaving = [c for c, index in self._replica_of.items() if index == replica]
        for conversation in leaving:
            self._release(conversation)
        del self._load[replica]
        for conversation in leaving:
            self._assign(conversation)

    def open(self, request: QueuedRequest) -> None:
        """Counts a new request as load of the replica of its conversation, which gets one if it is new."""
        if not request.conversation:
            return
        if request.conversation not in self._replica_of:
            self._conversations.setdefault(request.caller, set()).add(request.conversation)
            self._assign(request.conversation)
        self._open[request.conversation] += 1
        if request.conversation in self._replica_of:
            self._load[self._replica_of[request.conversation]][0] += 1

    def close(self, request: QueuedRequest) -> None:
        """Subtracts an ended request from the load of the replica of its conversation."""
        if not request.conversation or not self._open[request.conversation]:
            return
        self._open[request.conversation] -= 1
        if not self._open[request.conversation]:
            del self._open[request.conversation]
        if request.conversation in self._replica_of:
            self._load[self._replica_of[request.conversation]][0] -= 1

    def accepts(self, request: QueuedRequest, replica: int) -> bool:
        """Returns whether a replica may serve a request."""
        return not request.conversation or self._replica_of.get(request.conversation, replica) == replica

    def forget(self, caller: str) -> None:
        """Removes the conversations of a caller that has ended."""
        for conversation in self._conversations.pop(caller, ()):
            if conversation in self._replica_of:
                self._release(conversation)

    def _assign(self, conversation: str, replica: int | None = None) -> None:
        if replica is None:
            replica = min(self._load, key=self._load.__getitem__, default=None)
        if replica is not None:
            self._replica_of[conversation] = replica
            self._load[replica][0] += self._open.get(conversation, 0)
            self._load[replica][1] += 1

    def _release(self, conversation: str) -> None:
        replica = self._replica_of.pop(conversation)
        self._load[replica][0] -= self._open.get(conversation, 0)
        self._load[replica][1] -= 1
