"""Pickles that only who shares a key can have made.

A pickle can do anything to who opens it, and a port passes from one process to another: what comes is opened only if its
HMAC-SHA256 (RFC 2104), which precedes it, is right.
"""

import hmac
import pickle
import secrets
from dataclasses import dataclass, field
from typing import Any

MAC = 32
"""Bytes before every pickle."""


class Forged(Exception):
    """Not sealed with this key, or about something else."""


@dataclass(frozen=True, slots=True)
class Seal:
    """about: what a message belongs to, which travels otherwise and is vouched for, too."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(MAC), repr=False)

    def close(self, content: Any, about: bytes) -> bytes:
        packed = pickle.dumps(content, 5)
        return self._mac(packed, about) + packed

    def open(self, message: bytes, about: bytes) -> Any:
        """Raises Forged and opens nothing."""
        packed = memoryview(message)[MAC:]
        if not hmac.compare_digest(message[:MAC], self._mac(packed, about)):
            raise Forged("not sealed with the key that is known here")
        return pickle.loads(packed)

    def _mac(self, packed: bytes | memoryview, about: bytes) -> bytes:
        mac = hmac.new(self.key, about + b"\0", "sha256")
        mac.update(packed)
        return mac.digest()
