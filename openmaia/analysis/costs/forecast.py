"""What a sweep would cost in money: the tokens and images of its models on servers, and the hours of its GPUs."""

from dataclasses import dataclass

from openmaia.analysis.costs.beside import count_bank_images, count_reference_images, count_tested_images
from openmaia.analysis.costs.estimate import Estimate
from openmaia.analysis.costs.workload import Workload
from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, model_of, prompt_writer
from openmaia.core.components import BackboneConfig, of_config
from openmaia.core.messages import Reply
from openmaia.models.backbones.billing import cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected cost of a sweep."""

    parts: dict[str, float]
    """US dollars by service, of those whose price is known. Services that cost nothing are left out."""
    unknown: tuple[str, ...]
    """The services whose price is not known."""
    left_out: tuple[str, ...]
    """Models on servers whose use is not estimated: those that describe images, write test prompts, or judge."""

    @property
    def dollars(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())


def forecast(config: Config, work: Workload, units: int, timed: Estimate | None = None) -> Forecast:
    """Estimates the cost of `units` investigations and their tests. The GPUs of `timed` count by their work alone."""
    prices: dict[str, float | None] = {}
    if of_config(config.backbone).price_keys:
        prompt, cached, generated = (round(units * count) for count in work.tokens)
        reply = Reply(text="", prompt_tokens=prompt, cached_tokens=cached, generated_tokens=generated)
        settings = config.backbone
        is_known = None not in (getattr(settings, key) for key in of_config(settings).price_keys)
        prices["backbone"] = cost(reply, settings) if is_known else None  # type: ignore[arg-type]
    drawn = {role: work.asked[role].requests for role in ("generator", "editor") if role in work.asked}
    tested = 2 * count_tested_images(config)[-1]
    for role, settings, images, once in (
        ("generator", model_of(config, "generator"), drawn.get("generator", 0.0), count_bank_images(config)),
        ("editor", model_of(config, "editor"), drawn.get("editor", 0.0), 0),
        ("test images", model_of(config, TEST_GENERATOR), tested, count_reference_images(config)),
    ):
        if of_config(settings).price_keys:
            price = getattr(settings, "image_price", None)
            prices[role] = None if price is None else (units * images + once) * price
    if timed is not None and config.prices.gpu_hour:
        seconds = sum(each.replica_seconds * each.pool.gpus for each in timed.services.values())
        prices["GPUs"] = seconds / 3600 * config.prices.gpu_hour
    return Forecast(
        parts={name: price for name, price in prices.items() if price},
        unknown=tuple(name for name, price in prices.items() if price is None),
        left_out=_left_out(config),
    )


def _left_out(config: Config) -> tuple[str, ...]:
    writer = prompt_writer(config)
    others = {"viewer": config.viewer if config.backbone.sees == "text" else None, "evaluate.writer": writer}
    return tuple(
        name
        for name, settings in others.items()
        if settings is not None
        and of_config(settings, name).price_keys
        and (name != "evaluate.writer" or isinstance(settings, BackboneConfig))
    )
