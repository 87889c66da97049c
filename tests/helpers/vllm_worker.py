"""The worker of `vllm_platform`. Apart from it, because vLLM chooses its platform before a worker can be imported."""

from vllm.v1.worker.cpu_worker import CPUWorker


class RayCpuWorker(CPUWorker):
    def determine_available_memory(self) -> int:
        # The stages behind the first one receive into tensors that this makes; vLLM's own worker for CPUs has no stages.
        self.model_runner.profile_run()
        return super().determine_available_memory()
