"""Sentence embeddings by a model of sentence-transformers, an optional dependency."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.errors import UsageError
from openmaia.core.shipped import install_command

TextEmbedding = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""Returns rows of unit length, shape (texts, dimensions). Raises ValueError if there are no texts."""


def load_text_embedding(model: str) -> TextEmbedding:
    """Loads a model by its name on the hub or its folder. It caches all embeddings. Raises UsageError if
    sentence-transformers is not installed, or the model cannot be loaded."""
    try:
        import transformers
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise UsageError(
            f"sentence-transformers is not installed ({error}); install it: {install_command('embedding')}"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    try:
        loaded: Any = SentenceTransformer(model, trust_remote_code=False)
    except Exception as error:  # the boundary: whatever is wrong with the files of a user
        raise UsageError(
            f"{model}: no embedding model of sentence-transformers can be loaded from there ({error}); give the name of one "
            "on the hub, such as sentence-transformers/all-MiniLM-L6-v2, or its folder"
        ) from error

    known: dict[str, npt.NDArray[np.float32]] = {}
    lock = threading.Lock()

    def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
        with lock:
            new = [text for text in dict.fromkeys(texts) if text not in known]
            if new:
                vectors = loaded.encode(new, normalize_embeddings=True, show_progress_bar=False)
                known.update(zip(new, np.asarray(vectors, np.float32), strict=True))
            return np.stack([known[text] for text in texts])

    return embed
