"""The agent's instruments for a person in a notebook: no sandbox, the same toolbox, the same record."""

import contextlib
import time
from typing import Any

from openmaia import build, exemplars
from openmaia.agent.bench import Live, merged
from openmaia.agent.investigation import surroundings
from openmaia.config import load, to_dict
from openmaia.errors import ToolError, UsageError
from openmaia.images import Picture
from openmaia.messages import Part
from openmaia.store.files import safe
from openmaia.store.records import Record, Stop, Turn
from openmaia.store.run import Owed, Run
from openmaia.tasks.task import load as load_task
from openmaia.tools import api
from openmaia.tools.toolbox import Toolbox
from openmaia.units import Unit, select


def open_unit(source: str | list[str], spec: str) -> "tuple[api.System, Tools]":
    """Raises UsageError where spec names no unit, or more than one."""
    config = load([*([source] if isinstance(source, str) else source), f"units={spec}"])
    target = build.target(config)
    units = select(spec, target.info()).units
    if len(units) != 1:
        raise UsageError(f"{spec!r} names {len(units)} units; give one, such as {units[0].layer}={units[0].index}")
    config.name = safe(f"{config.name}-human-{units[0].layer}-{units[0].index}")
    store = exemplars.make(config, [unit.layer for unit in units], print)
    task, options = load_task(config.task.name), build.options(config)
    services = build.services(config, store)
    toolbox = Toolbox(surroundings(units[0], task, services, options, f"{units[0]}/human", config.seed))
    tools = Tools(_Desk(toolbox, units[0], to_dict(config), Run.create(config)), list(options.user_tools))
    return api.System(tools.call), tools


class Tools(api.Tools):
    """The agent's tools, and the end of the investigation."""

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
    """Serves calls and remembers them: one turn, as long as the person works."""

    def __init__(self, toolbox: Toolbox, unit: Unit, config: dict[str, Any], run: Run):
        self._unit, self._config, self._run = unit, config, run
        self._live = Live(toolbox)
        self._shown = 0
        self._started = time.time()

    def call(self, name: str, *args: Any) -> Any:
        try:
            return self._live.serve(name, list(args), {})
        except ToolError as error:
            raise ValueError(error.message) from None
        finally:
            new = self._live.parts[self._shown :]
            self._shown = len(self._live.parts)
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
            calls=tuple(self._live.calls),
            observation=merged(self._live.parts),
            output_digest="",
            prompt_tokens=0,
            cached_tokens=0,
            generated_tokens=0,
            left_out="",
            backbone_seconds=0.0,
            experiment_seconds=seconds,
            spent=self._live.toolbox.around.services.ledger.spent(),
            pictures=self._live.pictures(),
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
        owed = Owed(unit=self._unit, replicate=0)
        self._run.set_plan([self._unit], 1)
        self._run.publish(record)
        return self._run.record_path(owed)


def _show(parts: list[Part]) -> None:
    """In a notebook pictures are shown, elsewhere named."""
    display: Any = None
    with contextlib.suppress(ImportError):
        from IPython.core.getipython import get_ipython
        from IPython.display import display as ipython_display

        display = ipython_display if get_ipython() is not None else None
    for part in parts:
        if not isinstance(part, Picture):
            print(part, end="" if part.endswith("\n") else "\n")
        elif display is not None:
            display(part.pil())
        else:
            print(f"<picture {part.digest[:8]}, {part.pixels.shape[1]} x {part.pixels.shape[0]} pixels>")
