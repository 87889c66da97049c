"""What libraries raise for weights that they cannot load."""

import pickle
import struct

from safetensors import SafetensorError

LOADING_ERRORS = (
    # Unknown, gated or missing, and a hub that cannot be reached
    OSError,
    ImportError,
    # Damaged: a pickle of tensors alone raises almost anything then
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    SafetensorError,
    pickle.UnpicklingError,
    struct.error,
)
