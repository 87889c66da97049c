"""Makes all checks of this machine and of a config, for `openmaia doctor`."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from openmaia.checks import machine, memory, named, weights
from openmaia.checks.one_gpu import share_gpu
from openmaia.checks.stages import of_machine, of_servers
from openmaia.config.loading import load
from openmaia.core.checks import Check, note, ok
from openmaia.core.components import of_config, target_class

_SECONDS = 12.0
"""Seconds within which torch, torchvision and transformers must be imported and answer."""


def examine(sources: Sequence[str], seconds: float = _SECONDS) -> list[Check]:
    """Checks this machine, and whether it has everything that a config needs. Loads no weights.

    Args:
        sources: YAML files and key=value overrides; without any, only the machine is checked.
        seconds: Time within which torch, torchvision and transformers must be imported. If the import takes longer, the
            checks that need these libraries give a note or are left out.

    Raises:
        UsageError: The config is wrong.
    """
    config = load(sources) if sources else None
    distributions = named.installed()
    results = [machine.python(), *machine.versions(distributions), machine.sandbox()]
    if config is None:
        return [*results, *machine.libraries(machine.ask_libraries(seconds))]
    shares, sentence = share_gpu(sources, [config])
    if sentence:
        results.append(note(sentence))
        config = load([*shares, *sources])
    network = target_class(config.target).library_weights(config.target)
    model, tokens = of_config(config.backbone).gpu_use(config.backbone).cached or ("", 0)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(machine.ask_libraries, seconds, network, model, str(tokens))
        reports = weights.inspect(weights.weight_sources(config))
        quick = [*of_machine(config, distributions), *of_servers(config)]
        answers = asked.result()
    if network:
        reports.append(weights.inspect_network(network, answers.get("checkpoint", {})))
    gpus = [memory.GpuInfo(*gpu) for gpu in answers.get("gpus", ())]
    results += [*quick, *machine.libraries(answers), *(report.result for report in reports)]
    results += weights.disk_space(reports)
    results += memory.room(config, len(gpus)) if "gpus" in answers else ()
    results += memory.replica_memory(config, reports, answers.get("kv_cache", 0.0), gpus)
    # The layers are those of a module that torch makes, and units may be in files of which it is known that they are there.
    if "torchvision" in answers and all(each.state != "missing" for each in quick):
        results += named.inputs(config)
    if all(result.state != "missing" for result in results):
        results.append(ok(f"nothing that the config {config.name} needs is missing"))
    return results
