"""What our runs have to show in the papers' figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from openmaia.evaluate.bootstrap import Interval, mean_interval
from openmaia.evaluate.levels import Levels, levels
from openmaia.evaluate.statistics import wilson
from openmaia.figures.papers import published
from openmaia.store.run import Run

SYNTHETIC = "synthetic"

TITLES = {
    "resnet152": "ResNet-152",
    "dino_vits8": "DINO ViT-S/8",
    "clip_rn50": "CLIP RN50",
    SYNTHETIC: "Synthetic units",
}
"""The papers' networks, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. network: a key of TITLES where it is one of the papers', with its own weights; "" otherwise. images: who
    made them. headers: summaries of its records."""

    name: str
    network: str
    target: str
    backbone: str
    images: str
    tools: str
    protocol: str
    levels: Levels
    headers: tuple[Mapping[str, Any], ...]
    resamples: int

    @property
    def label(self) -> str:
        return f"{self.backbone}, {self.images} ({self.name})"

    @property
    def who(self) -> str:
        return f"{self.backbone} ({self.name})"

    @property
    def title(self) -> str:
        return TITLES.get(self.network) or f"{self.target} (not in the papers)"

    def papers_units(self, layer: str) -> int | None:
        """How many of the tested ones the papers evaluated too; None for another network."""
        asked = published.units().get(self.network)
        return None if asked is None else len(asked.get(layer, frozenset()) & set(self.levels.units.get(layer, ())))

    def turns(self) -> Interval:
        return mean_interval([float(header["turns"]) for header in self.headers], self.resamples)

    def usage(self) -> dict[str, Interval]:
        """Tool -> share of investigations that called it, with Wilson's interval."""
        names = sorted({str(tool) for header in self.headers for tool in header["tools"]})
        return {tool: share([tool in header["tools"] for header in self.headers]) for tool in names}


def share(hits: Sequence[bool]) -> Interval:
    """Of at least one trial, with Wilson's interval."""
    low, high = wilson(fmean(hits), len(hits))
    return Interval(mean=fmean(hits), low=low, high=high)


def measured(run: Run, name: str) -> Measured:
    config = run.config()
    asked = config["evaluate"]
    headers = tuple(run.headers())
    # A report is written of what is there, also where somebody has broken the config by hand.
    found: object = config.get("target")
    target = cast(Mapping[str, Any], found if isinstance(found, dict) else {})
    return Measured(
        name=name,
        network=network(target),
        target=str(target.get("name", "")),
        backbone=_backbone(config, headers),
        images=_maker(config["generator"]),
        tools=tool_set(config),
        protocol=f"protocol {asked['preset']}",
        levels=levels(run, asked["bootstrap"]),
        headers=headers,
        resamples=asked["bootstrap"],
    )


def network(target: Mapping[str, Any]) -> str:
    """Other weights make another network, whatever its name."""
    kind, name = target.get("kind"), target.get("network")
    if kind == SYNTHETIC:
        return SYNTHETIC
    is_known = kind == "network" and name in published.units() and not target.get("weights")
    return str(name) if is_known else ""


def tool_set(config: Mapping[str, Any]) -> str:
    """What the agent had, in the words of the papers' table where it is one of its sets. `without`: instruments left out."""
    left_out = frozenset(map(str, config.get("without") or ()))
    generator, editor = _maker(config["generator"]), _maker(config["editor"])
    if {"text2image", "edit_images"} <= left_out:
        return "exemplars only"
    if left_out == {"dataset_exemplars", "edit_images"}:
        return f"generation only ({generator})"
    if left_out == {"edit_images"}:
        return f"no editing ({generator})"
    if left_out:
        return f"without {', '.join(sorted(left_out))} ({generator})"
    return f"all tools ({generator}; edits by {editor})"


def _maker(service: Mapping[str, Any]) -> str:
    model = str(cast(Mapping[str, Any], service["diffusion"])["model"]) if service["kind"] == "diffusers" else ""
    return model.rstrip("/").rsplit("/", 1)[-1] or str(service["kind"])


def _backbone(config: Mapping[str, Any], headers: Sequence[Mapping[str, Any]]) -> str:
    """Of the records; without their remarks in brackets."""
    names = sorted({str(header["backbone"]).split(" (", 1)[0] for header in headers})
    return " and ".join(names) or str(config["backbone"]["model"] or config["backbone"]["kind"])
