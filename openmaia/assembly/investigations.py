"""Builds the services, limits and settings of the investigations of a config."""

from typing import Any

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.contrasts import Contrasts
from openmaia.agent.metering import metered
from openmaia.agent.sandbox import SandboxLimits
from openmaia.agent.tools.user_tools import import_tools
from openmaia.assembly.backbones import backbone, backbone_name
from openmaia.assembly.generators import editor, generator, vocabulary
from openmaia.assembly.targets import target
from openmaia.config.loading import to_dict
from openmaia.config.schema import Config
from openmaia.core.components import ALIASES, component, of_config
from openmaia.core.services import Backbone, Services, Target, UsageLedger
from openmaia.exemplars.store import ExemplarStore

NO_EVIDENCE = {"experiments": 0, "controls": 0, "replicates": 0, "labels": 0, "words": 0, "drawable": 0}
"""Values of `task.evidence` if the backbone runs no experiments."""

PROCESSES_MB = 150
"""What the processes of an investigation take of `ray.memory_mb`, in MiB. The rest may hold its images and calls."""
MIN_HELD_MB = 64
"""Memory in MiB that an investigation may always use for its images and calls."""

TURN_SHARE = 0.25
"""Largest share of a language model's context that the output of one experiment may fill with text."""

BYTES_PER_TOKEN = 3
"""A low estimate of the bytes per token of English text and Python code. Base64 text has about two bytes per token."""


def services(
    config: Config, store: ExemplarStore, *, measured: Target | None = None, agent: Backbone | None = None
) -> Services:
    """Loads the models of an investigation (the work of the agent on one unit) in this process.

    Every request to a model is counted in the field `ledger` of the returned object, with its duration and GPU time.

    Args:
        config: The config of the run.
        store: The stored exemplars (the dataset images that excite a unit most).
        measured: The target (the network under study), if it is loaded already.
        agent: The backbone (the model that plays the agent), if it is loaded already.
    """
    ledger, gpus = UsageLedger(), config.pools
    return Services(
        target=metered(measured or target(config), "target", ledger, gpus.target.num_gpus),
        exemplars=store,
        generator=metered(generator(config), "generator", ledger, gpus.generator.num_gpus),
        editor=metered(editor(config), "editor", ledger, gpus.editor.num_gpus),
        backbone=metered(agent or backbone(config), "backbone", ledger, gpus.backbone.num_gpus),
        ledger=ledger,
    )


def options(config: Config) -> InvestigationOptions:
    """Returns the settings of the agent's investigations, such as the largest number of turns.

    An investigation is the work of the agent on one unit.
    """
    box = config.sandbox
    return InvestigationOptions(
        config=to_dict(config),
        backbone=backbone_name(config),
        run_seed=config.seed,
        soft_turns=config.limits.soft_turns,
        turns=config.limits.turns,
        minutes=config.limits.minutes,
        wall_minutes=config.limits.wall_minutes,
        tokens=config.limits.tokens,
        reply_tokens=config.limits.reply_tokens,
        outage_minutes=config.backbone.outage_minutes,
        images_per_call=config.limits.images_per_call,
        held_mb=max(MIN_HELD_MB, config.ray.memory_mb - PROCESSES_MB),
        sees_images=config.backbone.sees == "images",
        sandbox=SandboxLimits(
            seconds=box.seconds,
            cpu_seconds=box.cpu_seconds,
            memory_mb=box.memory_mb,
            processes=box.processes,
            output_bytes=output_bytes(config),
            scratch_mb=box.scratch_mb,
            frame_mb=box.frame_mb,
        ),
        allow_none=box.allow_none,
        user_tools=import_tools(config.tools),
        evidence=vars(config.task.evidence) | ({} if of_config(config.backbone).experiments else NO_EVIDENCE),
        vocabulary=vocabulary(config),
        without=tuple(config.without),
        contrasts=contrasts(config),
    )


def output_bytes(config: Config) -> int:
    """Returns the largest number of bytes of text that an experiment of the agent may print.

    The same limit applies separately to the texts that the experiment shows with the tool `display`. The limit is
    `sandbox.output_bytes`. It is lower if a language model with a small context window plays the agent: printed and
    displayed texts together fill at most about a quarter of the window (TURN_SHARE), so that the output of one turn
    does not displace earlier turns.
    """
    tokens = of_config(config.backbone).context_tokens(config.backbone)
    if not tokens:
        return config.sandbox.output_bytes
    turn = int(tokens * TURN_SHARE * BYTES_PER_TOKEN)
    return min(config.sandbox.output_bytes, turn // 2)


def contrasts(config: Config) -> Contrasts | None:
    """Returns the rules that write prompts to test the labels of an answer (short names of what a unit responds to).

    They write prompts in pairs: one shows a label, and the other is a near miss. The near miss is the same scene with
    one thing changed, so that the label no longer holds. Returns None if a language model plays the agent, because it
    writes these prompts itself.
    """
    if of_config(config.backbone).reads_prompts:
        return None
    rules: Any = component("writer", next(iter(ALIASES["writer"])))
    return rules.contrasts()
