"""Where randomness comes from: a hash of what is asked for, never a counter of calls or a clock."""

import hashlib
from typing import Literal

Purpose = Literal["explore", "confirm", "evaluate"]


def seed(run_seed: int, purpose: Purpose, prompt: str, nth: int) -> int:
    """A 63-bit seed. nth: how often this unit has asked for this prompt before, so that a repeated prompt gives a new
    image, while two units that ask for the same thing get the same, cacheable one."""
    text = f"{run_seed}\x00{purpose}\x00{prompt}\x00{nth}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
