"""Routes all requests of a conversation to one replica, whose KV cache holds the prefix of the conversation."""

from collections import Counter

from cachetools import LRUCache

from openmaia.distributed.pools.dispatch.queueing import Request

_CONVERSATIONS = 10_000
"""So many conversations, the latest ones, are remembered. Nobody calls `forget` for the callers of a driver that was killed."""


class AffinityRouter:
    """Assigns each conversation with a language model to the replica with the fewest conversations.

    A conversation moves only if its replica is removed, or to balance the load after a replica was added.
    """

    def __init__(self) -> None:
        self._replicas: set[int] = set()
        self._replica_of: LRUCache[tuple[str, str], int] = LRUCache(_CONVERSATIONS)
        """By caller and conversation."""

    def add_replica(self, replica: int) -> None:
        """Adds a replica and moves conversations to it until the replicas are balanced.

        The new replica has to process the prefix of each moved conversation once.
        """
        self._replicas.add(replica)
        counts = self._counts()
        share = len(self._replica_of) // len(self._replicas)
        for conversation, owner in list(self._replica_of.items()):
            if counts[replica] < share < counts[owner]:
                counts.update({owner: -1, replica: 1})
                self._replica_of[conversation] = replica

    def remove_replica(self, replica: int) -> None:
        """Removes a replica. Its conversations are assigned to others when they go on."""
        self._replicas.discard(replica)

    def accepts(self, request: Request, replica: int) -> bool:
        """Returns whether a replica may serve a request."""
        if not request.conversation:
            return True
        conversation = request.caller, request.conversation
        if self._replica_of.get(conversation) not in self._replicas:
            counts = self._counts()
            self._replica_of[conversation] = min(self._replicas, key=lambda one: (counts[one], one), default=replica)
        return self._replica_of[conversation] == replica

    def forget(self, caller: str) -> None:
        """Removes the conversations of a caller that has ended."""
        for conversation in [one for one in self._replica_of if one[0] == caller]:
            del self._replica_of[conversation]

    def _counts(self) -> Counter[int]:
        return Counter(one for one in self._replica_of.values() if one in self._replicas)
