"""Seeds that depend neither on a clock nor on the order of requests."""

import hashlib
from typing import Literal

Purpose = Literal["explore", "confirm", "evaluate", "bank"]


def seed(run_seed: int, purpose: Purpose, prompt: str, nth: int) -> int:
    """Returns the 63-bit seed of a request to a model.

    Units that request the same text get the same image, which can be cached. `nth` counts the earlier requests of a
    unit for the text, so that a repeated prompt gives a new image.
    """
    text = f"{run_seed}\x00{purpose}\x00{prompt}\x00{nth}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
