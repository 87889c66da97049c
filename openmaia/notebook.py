"""Lets a person in a notebook investigate a unit with the tools of the agent, without a sandbox.

The calls are recorded in the same format as those of an agent.
"""

import contextlib
import time
from typing import Any

from openmaia.agent.context import InvestigationContext
from openmaia.agent.experiments import ToolSession, merged
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools import api
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.cli.assembly import exemplars
from openmaia.cli.assembly import hosts as build
from openmaia.config.loading import load, to_dict
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.core.selection import select
from openmaia.core.units import Unit
from openmaia.runs.files import safe
from openmaia.runs.records import Record, Stop, Turn
from openmaia.runs.run import InvestigationId, Run


def open_unit(source: str | list[str], spec: str) -> "tuple[api.System, NotebookTools]":
    """Opens one unit for an investigation by a person.

    Args:
        source: A config file, or a list of config files and overrides.
        spec: The unit, in the syntax of `units` in the config, such as "layer4=12".

    Returns:
        The objects `system` and `tools`, as they are defined for the agent.

    Raises:
        UsageError: If `spec` selects no unit or more than one.
    """
    config = load([*([source] if isinstance(source, str) else source), f"units={spec}"])
    target = build.target(config)
    units = select(spec, target.info()).units
    if len(units) != 1:
        raise UsageError(f"{spec!r} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    config.name = safe(f"{config.name}-human-{units[0].layer}-{units[0].index}")
    store = exemplars.make(config, [unit.layer for unit in units], print)
    task, options = load_task(config.task.name), build.options(config)
    services = build.services(config, store)
    toolbox = Toolbox(
        InvestigationContext(unit=units[0], task=task, services=services, options=options, run_seed=config.seed)
    )
    tools = NotebookTools(_Desk(toolbox, units[0], to_dict(config), Run.create(config)), list(options.user_tools))
    return api.System(tools.call), tools


class NotebookTools(api.Tools):
    """The tools of the agent, with methods that end the investigation and write its record."""

    def __init__(self, desk: "_Desk", user_tools: list[str]):
        super().__init__(desk.call)
        self._desk, self.call = desk, desk.call
        made = api.build(desk.call, {"tools": dict.fromkeys(user_tools, ""), "scope": "unit"})["tools"]
        for name in user_tools:
            setattr(self, name, getattr(made, name))

    def answer(self, description: str, *labels: str) -> str:
        """Writes the record with this answer and returns its path. An empty description is an abstention."""
        return self._desk.finish(Stop.ANSWER if description else Stop.ABSTAIN, description, labels or (description,))

    def close(self) -> str:
        """Writes the record without an answer and returns its path."""
        return self._desk.finish(Stop.STOPPED, "", ())


class _Desk:
    """Executes and records the calls of a person. The whole investigation is recorded as one turn."""

    def __init__(self, toolbox: Toolbox, unit: Unit, config: dict[str, Any], run: Run):
        self._unit, self._config, self._run = unit, config, run
        self._session = ToolSession(toolbox)
        self._shown = 0
        self._started = time.time()

    def call(self, name: str, *args: Any) -> Any:
        try:
            return self._session.serve(name, list(args), {})
        except ToolError as error:
            raise ValueError(error.message) from None
        finally:
            new = self._session.parts[self._shown :]
            self._shown = len(self._session.parts)
            _show(new)

    def finish(self, stop: Stop, description: str, labels: tuple[str, ...]) -> str:
        seconds = time.time() - self._started
        turn = Turn(
            index=0,
            reply="",
            code="",
            hypotheses=(),
            forgiven=(),
            status="ok",
            calls=tuple(self._session.calls),
            observation=merged(self._session.parts),
            output_digest="",
            prompt_tokens=0,
            cached_tokens=0,
            generated_tokens=0,
            left_out="",
            backbone_seconds=0.0,
            experiment_seconds=seconds,
            spent=self._session.toolbox.context.services.ledger.spent(),
            images=self._session.images,
        )
        record = Record(
            unit=self._unit,
            replicate=0,
            stop=stop,
            cause="",
            description=description,
            labels=tuple(label for label in labels if label),
            backbone="human",
            task=self._config["task"]["name"],
            sandbox="none (a person)",
            prompts=(),
            turns=(turn,),
            config=self._config,
            started=self._started,
        )
        investigation = InvestigationId(unit=self._unit, replicate=0)
        self._run.set_plan([self._unit], 1)
        self._run.publish(record)
        return self._run.record_path(investigation)


def _show(parts: list[Part]) -> None:
    """Prints texts and displays images. Outside of a notebook, prints the digest and size of an image instead."""
    display: Any = None
    with contextlib.suppress(ImportError):
        from IPython.core.getipython import get_ipython
        from IPython.display import display as ipython_display

        display = ipython_display if get_ipython() is not None else None
    for part in parts:
        if not isinstance(part, EncodedImage):
            print(part, end="" if part.endswith("\n") else "\n")
        elif display is not None:
            display(part.pil())
        else:
            print(f"<picture {part.digest[:8]}, {part.pixels.shape[1]} x {part.pixels.shape[0]} pixels>")
