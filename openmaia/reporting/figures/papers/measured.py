"""The numbers of our runs in figures of the MAIA papers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmaia.core.components import TargetComponent, stored
from openmaia.evaluation.analysis.agents import AgentStatistics, RecordSummary, compute_statistics
from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval
from openmaia.evaluation.analysis.summary import LayerActivations, run_scores
from openmaia.reporting.figures.papers import published
from openmaia.reporting.image_models import image_model, name_image_model
from openmaia.runs.run import Run

_SYNTHETIC = "synthetic"

TITLES = {
    "resnet152": "ResNet-152",
    "dino_vits8": "DINO ViT-S/8",
    "clip_rn50": "CLIP RN50",
    _SYNTHETIC: "Synthetic units",
}
"""The MAIA papers' names of networks by ours, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The results and settings of a run that appear in figures of the MAIA papers."""

    name: str
    """In the figures."""
    network: str
    """A key of `TITLES` if the target is a network of the papers with its default weights; empty otherwise."""
    target: str
    """`target.name` in the config."""
    backbone: str
    generator: str
    """See `image_model`."""
    tools: str
    """See `name_tool_set`."""
    protocol: str
    """The word "protocol" and `evaluate.preset`, which selects the test prompts."""
    levels: LayerActivations
    """Mean activations on positive and neutral images."""
    agents: AgentStatistics
    turns: Interval | None
    """Mean number of turns; None without investigations."""
    resamples: int

    @property
    def label(self) -> str:
        """The run's label in charts of activations, which depend on the generator."""
        return f"{self.backbone}, {self.generator} ({self.name})"

    @property
    def agent_label(self) -> str:
        """The run's label in charts about agents."""
        return f"{self.backbone} ({self.name})"

    @property
    def title(self) -> str:
        """The papers' name of the network, or its name in the config, followed by "(not in the papers)"."""
        return TITLES.get(self.network) or f"{self.target} (not in the papers)"

    def units_of_the_papers(self, layer: str) -> int | None:
        """Returns how many units of a layer both this run and the papers tested; None if they did not test the network."""
        layers = published.units().get(self.network)
        return None if layers is None else len(layers.get(layer, frozenset()) & set(self.levels.units.get(layer, ())))


def measured(run: Run, name: str) -> MeasuredRun:
    """Reads what figures show of a run. If `target` in its config is damaged, `network` and `target` are empty."""
    config = run.config()
    evaluate = config["evaluate"]
    summaries = run.headers()
    turns = [float(summary["turns"]) for summary in summaries]
    configured: object = config.get("target")
    target = cast(Mapping[str, Any], configured if isinstance(configured, dict) else {})
    return MeasuredRun(
        name=name,
        network=recognize_network(target),
        target=str(target.get("name", "")),
        backbone=_backbone(config, summaries),
        generator=image_model(config["generator"], "generator"),
        tools=name_tool_set(config),
        protocol=f"protocol {evaluate['preset']}",
        levels=run_scores(run, evaluate["bootstrap"]).activations,
        agents=compute_statistics(summaries),
        turns=mean_interval(turns, evaluate["bootstrap"]) if turns else None,
        resamples=evaluate["bootstrap"],
    )


def recognize_network(target: Mapping[str, Any]) -> str:
    """Returns the key in TITLES of the network in a config's section `target`.

    Empty if the papers did not study it with these weights.
    """
    found = stored(target, "target")
    name = cast(type[TargetComponent], found[0]).published_name(found[1]) if found else ""
    return name if name == _SYNTHETIC or name in published.units() else ""


def name_tool_set(config: Mapping[str, Any]) -> str:
    """Returns a name for the set of tools in a config.

    For the three sets of table A5 of the MAIA paper, the name begins as in `data/ablation.csv`: "exemplars only"
    (neither `text2image` nor `edit_images`), "generation only" or "all tools". For others it says which tools were left
    out. All names but "exemplars only" end with the name of the generator in brackets.
    """
    left_out = set(map(str, config.get("without") or ()))
    generator, editor = name_image_model(config["generator"]), name_image_model(config["editor"])
    if {"text2image", "edit_images"} <= left_out:
        return "exemplars only"
    if left_out == {"dataset_exemplars", "edit_images"}:
        return f"generation only ({generator})"
    if left_out == {"edit_images"}:
        return f"no editing ({generator})"
    if left_out:
        return f"without {', '.join(sorted(left_out))} ({generator})"
    return f"all tools ({generator}; edits by {editor})"


def _backbone(config: Mapping[str, Any], summaries: Sequence[RecordSummary]) -> str:
    names = sorted({str(summary["backbone"]).split(" (", 1)[0] for summary in summaries})
    return " and ".join(names) or str(config["backbone"].get("model") or config["backbone"]["kind"])
