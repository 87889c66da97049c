"""Sentence embeddings of texts by a model of sentence-transformers, an optional dependency."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openmaia.core.errors import UsageError

INSTALL = 'pip install -e ".[embedding]"'

TextEmbedding = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""Returns the embedding of each text as a row of unit length, (texts, dimensions)."""


def load_text_embedding(model: str) -> TextEmbedding:
    """Loads a model of sentence embeddings.

    Args:
        model: The name of a model on the hub, such as sentence-transformers/all-MiniLM-L6-v2, or its folder.

    Raises:
        UsageError: If sentence-transformers is not installed, or the model cannot be loaded.
    """
    try:
        import transformers
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise UsageError(f"sentence-transformers is not installed ({error}); install it: {INSTALL}") from error
    transformers.utils.logging.disable_progress_bar()
    try:
        loaded: Any = SentenceTransformer(model, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise UsageError(
            f"{model}: no embedding model of sentence-transformers can be loaded from there ({error}); give the name of one "
            "on the hub, such as sentence-transformers/all-MiniLM-L6-v2, or its folder"
        ) from error

    def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
        found = loaded.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, np.float32)

    return embed
