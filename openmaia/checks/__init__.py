"""Implements `openmaia doctor`, which checks what this machine can run. The checks load no weights."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from openmaia.checks import machine, memory, weights
from openmaia.checks.quick import quick_checks
from openmaia.checks.sources import library_network, weight_sources
from openmaia.config.loading import load
from openmaia.core.checks import Check, ok
from openmaia.core.components import of_config
from openmaia.distributed.launchers.requirements import installed

__all__ = ["Check", "examine"]

_SECONDS = 12.0
"""Seconds within which torch, torchvision and transformers must be imported and answer."""


def examine(sources: Sequence[str], seconds: float = _SECONDS) -> list[Check]:
    """Checks this machine, and whether it has everything that a config needs. Loads no weights.

    Args:
        sources: YAML files and key=value overrides; without any, only the machine is checked.
        seconds: Time within which torch, torchvision and transformers must be imported. If the import takes longer, the
            checks that need these libraries give a note or are left out.

    Returns:
        A result for each thing that was checked.

    Raises:
        UsageError: The config is wrong.
    """
    config = load(sources) if sources else None
    distributions = installed()
    results = [machine.python(), *machine.versions(distributions), machine.sandbox()]
    if config is None:
        return [*results, *machine.libraries(machine.ask_libraries(seconds))]
    network = library_network(config)
    model, tokens = of_config(config.backbone).gpu_use(config.backbone).cached or ("", 0)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(machine.ask_libraries, seconds, network, model, str(tokens))
        reports = weights.inspect(weight_sources(config))
        results += quick_checks(config, distributions)
        answers = asked.result()
    if network:
        reports.append(weights.inspect_network(network, answers.get("checkpoint", {})))
    gpus = [memory.GpuInfo(*gpu) for gpu in answers.get("gpus", ())]
    results += [*machine.libraries(answers), *(report.result for report in reports), *weights.disk_space(reports)]
    results += memory.gpu_count(config, len(gpus)) if "gpus" in answers else []
    results += memory.replica_memory(config, reports, answers.get("kv_cache", 0.0), gpus)
    if all(result.state != "missing" for result in results):
        results.append(ok(f"nothing that the config {config.name} needs is missing"))
    return results
