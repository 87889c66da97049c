"""vLLM's platform for CPUs with one thing more, as its platforms for GPUs have it: its Ray executor may be used.

A plugin of vLLM. Pretended GPUs of Ray stand for the devices, so that what OpenMAIA and vLLM do to place the parts of one
model on several nodes runs here as on nodes with GPUs; only the arithmetic is done on the CPU.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:  # it asks for the platform when it is imported
    from vllm.config import VllmConfig


class RayCpuPlatform(CpuPlatform):
    ray_device_key = "GPU"

    @classmethod
    def check_and_update_config(cls, vllm_config: "VllmConfig") -> None:
        super().check_and_update_config(vllm_config)
        vllm_config.parallel_config.worker_cls = "tests.helpers.vllm_worker.RayCpuWorker"


def platform() -> str:
    return f"{__name__}.RayCpuPlatform"


def install(folder: Path) -> None:
    """Makes vLLM find the plugin in processes that have the folder on their path."""
    metadata = folder / "ray_cpu_platform-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ray-cpu-platform\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.platform_plugins]\nray_cpu = {__name__}:{platform.__name__}\n")
