"""An engine of vLLM in the process of a test. vLLM is imported when one is started: that takes seconds, and every process of
the tests reads every file."""

from typing import Protocol

import pytest

from openmaia.core.services import Backbone
from openmaia.models.backbones.vllm.component import VllmBackboneConfig


class Engine(Backbone, Protocol):
    """A backbone that ends."""

    def close(self) -> None: ...


def start(config: VllmBackboneConfig, gpu_share: float = 0.0) -> Engine:
    """Starts an engine, or skips the test where vLLM is missing."""
    pytest.importorskip("vllm")
    from openmaia.models.backbones.vllm.engine import VllmBackbone

    return VllmBackbone(config, gpu_share)
