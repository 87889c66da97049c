"""Builds the services, limits and settings of the investigations of a config."""

from typing import Any
from uuid import uuid4

from openmaia.agent.context import InvestigationOptions
from openmaia.agent.contrasts import Contrasts
from openmaia.agent.metering import metered
from openmaia.agent.sandbox import SandboxLimits
from openmaia.agent.tasks.task import evidence_values
from openmaia.agent.tools.user_tools import import_tools
from openmaia.assembly.backbones import backbone, backbone_name
from openmaia.assembly.generators import editor, generator, vocabulary
from openmaia.assembly.targets import target
from openmaia.config.loading import to_dict
from openmaia.config.prices import paid_services
from openmaia.config.schema import Config, pools_by_role, prompt_writer, rules
from openmaia.core.components import of_config
from openmaia.core.services import Backbone, Editor, Generator, Services, Target, UsageLedger
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.purse import COMMANDS, RunBook, RunPurse
from openmaia.runs.run import Run

# What the processes of an investigation take of `ray.memory_mb`. The rest may hold its images and calls.
PROCESSES_MB = 150
# What an investigation may always use for its images and calls.
MIN_HELD_MB = 64

# Of a language model's context, for the text in the output of one experiment: it should not displace earlier turns.
TURN_SHARE = 0.25

# A low estimate for English text and Python code. Base64 text has about two bytes per token.
BYTES_PER_TOKEN = 3


def services(
    config: Config,
    store: ExemplarStore,
    *,
    measured: Target | None = None,
    agent: Backbone | None = None,
    drawing: Generator | None = None,
    editing: Editor | None = None,
) -> Services:
    """Loads the models of an investigation in this process, unless they are given. Every request is counted in
    `ledger`, with its duration and GPU time."""
    ledger, gpus = UsageLedger(), config.pools
    drawing = drawing or generator(config)
    edits = getattr(gpus, pools_by_role(config)["editor"])
    return Services(
        target=metered(measured or target(config), "target", ledger, gpus.target.num_gpus),
        exemplars=store,
        generator=metered(drawing, "generator", ledger, gpus.generator.num_gpus),
        editor=metered(editing or editor(config, drawing), "editor", ledger, edits.num_gpus),
        backbone=metered(agent or backbone(config), "backbone", ledger, gpus.backbone.num_gpus),
        ledger=ledger,
    )


def purse(run: Run, config: Config) -> RunPurse:
    """Returns the purse of a run whose investigations all run in this process."""
    return RunPurse(RunBook(run, config.budget), config.prices.gpu_hour, paid_services(config))


def command_ledger(run: Run, config: Config) -> UsageLedger:
    """Returns the ledger of a command that uses the models of a run in this process, once it has ended: the budget of the run
    pays. A further evaluation has that of its run."""
    paying = run if run.source is None else Run(run.source)
    book = RunBook(paying, config.budget, f"{COMMANDS}/{uuid4().hex}.json")
    return UsageLedger(RunPurse(book, config.prices.gpu_hour, paid_services(config)).terms("command"))


def options(config: Config) -> InvestigationOptions:
    """Returns the settings of investigations."""
    box = config.sandbox
    return InvestigationOptions(
        config=to_dict(config),
        backbone=backbone_name(config),
        run_seed=config.seed,
        **vars(config.limits),
        outage_minutes=config.backbone.outage_minutes,
        held_mb=max(MIN_HELD_MB, config.ray.memory_mb - PROCESSES_MB),
        sees_images=config.backbone.sees == "images",
        sandbox=SandboxLimits(
            seconds=box.seconds,
            cpu_seconds=box.cpu_seconds,
            memory_mb=box.memory_mb,
            output_bytes=output_bytes(config),
        ),
        allow_none=box.allow_none,
        user_tools=import_tools(config.tools),
        evidence=evidence_values(config),
        states=config.task.hypotheses.states,
        vocabulary=vocabulary(config),
        without=tuple(config.without),
        shown=config.bank.shown,
        words=config.bank.words,
        shared=config.shared.images,
        looks_up=config.shared.look_up,
        contrasts=contrasts(config),
    )


def output_bytes(config: Config) -> int:
    """Returns the largest number of bytes that an experiment may print, and likewise show with the tool `display`.

    It is `sandbox.output_bytes`, or less for a model with a small context: both together fill about a quarter of it.
    """
    tokens = of_config(config.backbone).context_tokens(config.backbone)
    if not tokens:
        return config.sandbox.output_bytes
    turn = int(tokens * TURN_SHARE * BYTES_PER_TOKEN)
    return min(config.sandbox.output_bytes, turn // 2)


def contrasts(config: Config) -> Contrasts | None:
    """Returns the rules that write contrasts: those of the tests, if rules write these. None if a language model plays the
    agent, because it writes them itself."""
    if of_config(config.backbone).reads_prompts:
        return None
    writer: Any = of_config(prompt_writer(config))
    chosen: Any = writer if hasattr(writer, "contrasts") else of_config(rules(config))
    return chosen.contrasts(config.generator)
