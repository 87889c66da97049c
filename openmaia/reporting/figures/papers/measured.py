"""Reads from our runs the numbers for the figures that reproduce those of the MAIA papers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from openmaia.core.components import TargetComponent, stored
from openmaia.evaluation.analysis.bootstrap import Interval, mean_interval
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.analysis.summary import LayerActivations, run_scores
from openmaia.reporting.figures.agents import RecordSummary
from openmaia.reporting.figures.papers import published
from openmaia.reporting.image_models import image_model
from openmaia.runs.run import Run

SYNTHETIC = "synthetic"

TITLES = {
    "resnet152": "ResNet-152",
    "dino_vits8": "DINO ViT-S/8",
    "clip_rn50": "CLIP RN50",
    SYNTHETIC: "Synthetic units",
}
"""The titles of the MAIA papers' networks by our names of them, in the order of the papers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The results and settings of a run that appear in our reproductions of the MAIA papers' figures."""

    name: str
    """The name under which the figures show the run."""
    network: str
    """A key of `TITLES` if the target is a network of the papers with its default weights; empty otherwise."""
    target: str
    """The name of the target in the config (`target.name`)."""
    backbone: str
    """The name of the language model that plays the agent."""
    generator: str
    """The name of the model that generates images, see `image_model`."""
    tools: str
    """The name of the agent's set of tools, see `tool_set`."""
    protocol: str
    """The word "protocol" and the value of `evaluate.preset` in the config, which selects the test prompts."""
    levels: LayerActivations
    """Mean activations on test images that should show the labels (positive) and that should not (neutral)."""
    summaries: tuple[RecordSummary, ...]
    """The summaries of all records."""
    resamples: int
    """Number of bootstrap resamples."""

    @property
    def label(self) -> str:
        """The run's label in charts of activations: backbone, image generator (activations depend on it) and name."""
        return f"{self.backbone}, {self.generator} ({self.name})"

    @property
    def agent_label(self) -> str:
        """The run's label in charts about agents: the agent's model (the backbone) and the run's name."""
        return f"{self.backbone} ({self.name})"

    @property
    def title(self) -> str:
        """The network's name in figures.

        A network of the MAIA papers has the name that the papers use. Any other network has its name in the config,
        followed by "(not in the papers)".
        """
        return TITLES.get(self.network) or f"{self.target} (not in the papers)"

    def units_of_the_papers(self, layer: str) -> int | None:
        """Returns how many units of a layer were tested both by this run and by the MAIA papers.

        Returns None if the papers did not test the network of this run.
        """
        layers = published.units().get(self.network)
        return None if layers is None else len(layers.get(layer, frozenset()) & set(self.levels.units.get(layer, ())))

    def turns(self) -> Interval:
        """Returns the mean number of turns of an investigation with its bootstrap interval."""
        return mean_interval([float(summary["turns"]) for summary in self.summaries], self.resamples)

    def usage(self) -> dict[str, Interval]:
        """Returns for each tool the share of investigations that called it, with Wilson's interval."""
        names = sorted({str(tool) for summary in self.summaries for tool in summary["tools"]})
        return {tool: share([tool in summary["tools"] for summary in self.summaries]) for tool in names}


def share(hits: Sequence[bool]) -> Interval:
    """Returns the share of true values in `hits`, with Wilson's 95 % interval. `hits` must not be empty."""
    low, high = wilson(fmean(hits), len(hits))
    return Interval(mean=fmean(hits), low=low, high=high)


def measured(run: Run, name: str) -> MeasuredRun:
    """Reads the results and settings of a run that appear in our reproductions of the MAIA papers' figures.

    If the section `target` of the run's config is missing or damaged, the fields `network` and `target` of the result
    are empty.

    Args:
        run: The run.
        name: The name under which the figures show the run.
    """
    config = run.config()
    evaluate = config["evaluate"]
    summaries = tuple(run.headers())
    configured: object = config.get("target")
    target = cast(Mapping[str, Any], configured if isinstance(configured, dict) else {})
    return MeasuredRun(
        name=name,
        network=network(target),
        target=str(target.get("name", "")),
        backbone=_backbone(config, summaries),
        generator=image_model(config["generator"], "generator"),
        tools=tool_set(config),
        protocol=f"protocol {evaluate['preset']}",
        levels=run_scores(run, evaluate["bootstrap"]).activations,
        summaries=summaries,
        resamples=evaluate["bootstrap"],
    )


def network(target: Mapping[str, Any]) -> str:
    """Recognizes the networks of the MAIA papers.

    Args:
        target: The section `target` of a config, which names the network that a run studies.

    Returns:
        The network's key in TITLES. Empty if the papers did not study this network with these weights.
    """
    found = stored(target, "target")
    name = cast(type[TargetComponent], found[0]).published_name(found[1]) if found else ""
    return name if name == SYNTHETIC or name in published.units() else ""


def tool_set(config: Mapping[str, Any]) -> str:
    """Returns a name for the set of tools that a run gave to its agent.

    Table A5 of the MAIA paper compares three sets of tools. For these, the name begins as in `data/ablation.csv`:
    "exemplars only" (neither `text2image` nor `edit_images`), "generation only" or "all tools". The name of any other
    set says which tools the agent lacked. All names but "exemplars only" end with the model that generates images, in
    brackets.

    Args:
        config: The config of the run. Its key `without` lists the tools that were left out.
    """
    left_out = set(map(str, config.get("without") or ()))
    generator, editor = image_model(config["generator"], "generator"), image_model(config["editor"], "editor")
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
    """Returns the names of the backbones of the records, without remarks in brackets."""
    names = sorted({str(summary["backbone"]).split(" (", 1)[0] for summary in summaries})
    return " and ".join(names) or str(config["backbone"]["model"] or config["backbone"]["kind"])
