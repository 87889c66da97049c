"""What a sweep asks of its services beside the investigations and the tests of their descriptions, and what is not counted."""

from collections import Counter
from collections.abc import Iterator, Mapping

from openmaia.analysis.costs.workload import Workload
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, pools_by_role, prompt_writer
from openmaia.core.components import of_config, target_class
from openmaia.evaluation.services import look_sizes


def count_tested_images(config: Config) -> tuple[int, ...]:
    """Returns the number of images of each kind on which a description is tested up to each look."""
    return look_sizes(config.evaluate.preset, config.evaluate.n, config.evaluate.looks)


def count_reference_images(config: Config) -> int:
    """Returns how many images are drawn once for the tests of a sweep, at most: those of random words, and unrelated ones."""
    sizes = count_tested_images(config)
    return 2 * config.evaluate.random_words * sizes[0] + sizes[-1]


def count_bank_images(config: Config) -> int:
    """Returns how many images of the bank are drawn."""
    return 0 if config.bank.folder else config.bank.images


def count_shared_images(config: Config, work: Workload) -> float:
    """Returns how many images of an investigation are kept for others, at most."""
    drawn = work.asked["generator"].requests if "generator" in work.asked else 0.0
    return min(config.shared.images, drawn)


def count_once(config: Config) -> Mapping[str, float]:
    """Returns the requests to each service that a sweep makes once, whatever the number of units, at most."""
    reference, layers = count_reference_images(config), max(len(target_class(config.target).layers(config.target)), 1)
    once = Counter({pools_by_role(config)[TEST_GENERATOR]: reference})
    once["target"] += layers * (reference + config.evaluate.pictures)
    once["generator"] += count_bank_images(config)
    return once


def count_each(config: Config, work: Workload) -> Mapping[str, float]:
    """Returns the requests to each service for one investigation that are neither its own nor those of its test, at most."""
    photographs = config.evaluate.detect if config.evaluate.pictures else 0
    return {"target": count_shared_images(config, work) + photographs}


def list_uncounted(config: Config, work: Workload) -> list[str]:
    """Returns the parts of a sweep whose time an estimate leaves out, in words. None is left out of CPU times of whole runs."""
    if work.cores and not work.timed:
        return []
    return ["queues", "loading of models", "failures", *_named(config)]


def _named(config: Config) -> Iterator[str]:
    yield f"exemplars (pictures: {of_config(config.pictures).title(config.pictures)})"
    if config.bank.images:
        yield f"measuring the {config.bank.images:,} images of the bank on all units"
    agent = of_config(config.backbone)
    if (config.backbone.sees == "text" or agent.asks_viewer) and not of_config(config.viewer).is_absent:
        yield f"{of_config(config.viewer).title(config.viewer)} (viewer)"
    writer, judge = prompt_writer(config), config.evaluate.judge
    yield f"test prompts of {of_config(writer).title(writer)} (evaluate.writer)"
    if judge is not None and not of_config(judge).is_absent:
        yield f"{of_config(judge).title(judge)} (evaluate.judge)"
    elif judge is None and of_config(writer).reads_prompts and config.evaluate.detect:
        yield f"judgements of {of_config(writer).title(writer)}"
    if config.tools:
        yield f"your tools ({', '.join(config.tools)})"
