"""`openmaia.open`: a person investigates a unit in a notebook with the tools of the agent, without a sandbox.

`openmaia.assign` divides units among several people, who open theirs one after the other without seeing any label.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openmaia.agent.context import InvestigationContext
from openmaia.agent.experiments import ToolSession, merge_parts
from openmaia.agent.tools import api
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.api.assignments import divide, next_unit, write_assignments
from openmaia.api.html import find_display, render_parts
from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.api.session import open_unit, target_info
from openmaia.assembly.single import SingleUnit
from openmaia.config.schema import Config
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.core.secrets import boundary
from openmaia.core.selection import select
from openmaia.runs.people import checked_name
from openmaia.runs.records import HUMAN, ExperimentStatus, Record, Stop, Turn
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.api.inputs import NetworkSource
    from openmaia.datasets.memory import IndexedImages
    from openmaia.models.targets.preprocess import Preprocess
    from openmaia.models.targets.transforms import Transform


@boundary()
def open(
    model: "NetworkSource",
    layer: str = "",
    unit: int | str | None = None,
    *,
    person: str = "",
    images: "str | Path | Mapping[str, Any] | IndexedImages | Iterable[Any] | None" = None,
    preprocess: "Transform | Preprocess | Mapping[str, Any] | None" = None,
    **overrides: Any,
) -> "tuple[api.System, NotebookTools]":
    """Lets a person investigate one unit in a notebook, with the tools that agents have.

    Everything runs in this process, without a sandbox. The object `system` measures the activation of the unit on
    images. The object `tools` returns exemplars, and generates, edits and displays images. All calls are recorded. Each
    cell of a notebook that makes calls is a turn with the cell's code; elsewhere all calls are one turn.

    `tools.answer(description, *labels)` ends the investigation, and `tools.close()` ends it without an answer. Both add
    the record to the run `NAME-human` (NAME is the name of the run in the config). Earlier records of the unit are
    kept. If `model` is a `torch.nn.Module`, it stays in evaluation mode until the investigation ends.

    Args:
        model: As for `openmaia.investigate`.
        layer: The name of the layer, as for `openmaia.investigate`, or the unit as `LAYER=INDEX`, such as `layer4=122`.
            Empty for the next unit that `openmaia.assign` gave to `person`.
        unit: The index of the unit in the layer. None if `layer` names the unit.
        person: Who investigates. The record's backbone is then `human: PERSON`.
        images: As for `openmaia.investigate`.
        preprocess: As for `openmaia.investigate`.
        **overrides: Other settings by their config keys, as for `openmaia.investigate`.

    Returns:
        The objects `system` and `tools`.

    Raises:
        UsageError: The unit does not exist, the person has no unit left, or another argument is invalid.

    Example:
        >>> system, tools = openmaia.open("configs/demo.yaml", "stage4=66")
        >>> activations, seen = system.call_neuron(tools.text2image(["a guitar on grass", "grass"]))
        >>> tools.display(*seen)
        >>> tools.answer("stringed instruments", "guitar")
    """
    person = checked_name(person) if person else ""
    spec = layer if unit is None else f"{layer}={unit}"
    if not spec and not person:
        raise UsageError("no unit is named; give layer and unit, or the person to whom openmaia.assign gave units")
    if not spec:
        spec = next_unit(
            Run.of(_human(configure(model, "all", overrides=overrides, function="openmaia.open").config)), person
        )
    inputs = configure(model, spec, images=images, preprocess=preprocess, overrides=overrides, function="openmaia.open")
    view = PrintedProgress()
    with ExitStack() as stack:
        single = stack.enter_context(
            open_unit(inputs, view.say, lambda done, total: view.progress("exemplars", done, total), is_human=True)
        )
        run = Run.create(_human(single.config))
        run.bind(single.services.target.info())
        desk = _Desk(single, run, stack.pop_all(), person)
    tools = NotebookTools(desk, list(single.options.user_tools))
    return api.System(tools.call), tools


@boundary()
def assign(
    model: "NetworkSource",
    units: str,
    people: Sequence[str],
    *,
    each: int = 1,
    seed: int = 0,
    preprocess: "Transform | Preprocess | Mapping[str, Any] | None" = None,
    **overrides: Any,
) -> dict[str, list[str]]:
    """Gives units to people, each of whom opens hers one after the other with `openmaia.open(model, person=NAME)`.

    Nobody sees what others, or agents, say of a unit. The assignments are stored in the run `NAME-human`, and replace
    earlier ones; units that a person has answered stay done.

    Args:
        model: As for `openmaia.open`.
        units: The units, in the syntax of the config key `units`.
        people: Their names. Everyone gets equally many units, or one more, in an order of their own.
        each: To how many people each unit is given.
        seed: Of the order and of who gets what.
        preprocess: As for `openmaia.open`.
        **overrides: As for `openmaia.open`.

    Returns:
        For each person the names of the units, such as `layer4=122`, in their order.

    Raises:
        UsageError: A name is empty or given twice, `each` exceeds the number of people, or another argument is invalid.

    Example:
        >>> openmaia.assign("configs/demo.yaml", "stage4=random:20", ["ada", "grace", "mary"], each=2)
    """
    inputs = configure(model, units, preprocess=preprocess, overrides=overrides, function="openmaia.open")
    names = [checked_name(name) for name in people]
    chosen = select(units, target_info(inputs)).units
    shares = divide([f"{unit.layer}={unit.index}" for unit in chosen], names, each, seed)
    write_assignments(Run.of(_human(inputs.config)), shares)
    return shares


def _human(config: Config) -> Config:
    # The units of a person's run are those of its records, so that every session has the same config.
    return replace(config, name=f"{config.name}-human", units="all")


class NotebookTools(api.Tools):
    """The tools of an agent for a person in a notebook, and two methods that end the investigation.

    `openmaia.open` returns them.
    """

    def __init__(self, desk: "_Desk", user_tools: list[str]):
        super().__init__(desk.call)
        self._desk, self.call = desk, desk.call
        made = api.build(desk.call, {"tools": dict.fromkeys(user_tools, ""), "scope": "unit"})["tools"]
        for name in user_tools:
            setattr(self, name, getattr(made, name))

    def answer(self, description: str, *labels: str) -> str:
        """Ends the investigation with an answer, and writes its record.

        Args:
            description: What the unit responds to, in one or two sentences. Empty if no description fits.
            *labels: Short phrases, each for one thing. If none are given, the description is the only label.

        Returns:
            The path of the file of the record.

        Raises:
            ValueError: The investigation has ended already.
        """
        return self._desk.finish(
            Stop.ANSWER if description or labels else Stop.ABSTAIN, description, labels or (description,)
        )

    def close(self) -> str:
        """Ends the investigation without an answer, and writes its record.

        Returns:
            The path of the file of the record.

        Raises:
            ValueError: The investigation has ended already.
        """
        return self._desk.finish(Stop.STOPPED, "", ())


class _Cell(NamedTuple):
    """A cell of a notebook."""

    number: int
    code: str


class _Desk:
    """Executes and records the calls of a person, with a turn for each cell. `resources` is closed at the end."""

    def __init__(self, single: SingleUnit, run: Run, resources: ExitStack, person: str):
        self._single, self._run, self._resources = single, run, resources
        self._backbone = f"{HUMAN}: {person}" if person else HUMAN
        context = InvestigationContext(
            unit=single.unit,
            task=single.task,
            services=single.services,
            options=single.options,
            run_seed=single.config.seed,
        )
        self._toolbox = Toolbox(context)
        self._turns: list[Turn] = []
        self._cell = _Cell(0, "")
        self._begin()
        self._started = time.time()
        self._ended = ""
        """The path of the record."""

    def _begin(self) -> None:
        self._session, self._shown, self._since = ToolSession(self._toolbox), 0, time.time()
        self._spent = self._single.services.ledger.spent()

    def call(self, name: str, *args: Any) -> Any:
        self._check_open()
        self._follow(_running_cell())
        try:
            return self._session.serve(name, list(args), {})
        except ToolError as error:
            raise ValueError(error.message) from None
        finally:
            new = self._session.parts[self._shown :]
            self._shown = len(self._session.parts)
            _show(new, [image.label for image in self._session.calls[-1].given] if new else [])

    def _follow(self, cell: _Cell) -> None:
        if cell.number != self._cell.number and self._session.calls:
            self._turns.append(self._turn())
            self._begin()
        self._cell = cell

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(f"this investigation has ended with the record {self._ended}; call openmaia.open again")

    def finish(self, stop: Stop, description: str, labels: tuple[str, ...]) -> str:
        self._check_open()
        if self._session.calls or not self._turns:
            self._turns.append(self._turn())
        record = Record(
            unit=self._single.unit,
            replicate=0,
            stop=stop,
            cause="",
            description=description,
            labels=tuple(label for label in labels if label),
            backbone=self._backbone,
            task=self._single.task.name,
            sandbox="none (a person)",
            prompts=(),
            turns=tuple(self._turns),
            config=self._single.options.config,
            preprocessing=self._single.options.preprocessing,
            started=self._started,
        )
        self._ended = self._run.record_path(self._run.add(record))
        self._resources.close()
        return self._ended

    def _turn(self) -> Turn:
        known = {digest for turn in self._turns for digest in turn.images}
        return Turn(
            index=len(self._turns),
            reply="",
            code=self._cell.code,
            hypotheses=(),
            forgiven=(),
            status=ExperimentStatus.OK,
            calls=tuple(self._session.calls),
            observation=merge_parts(self._session.parts),
            output_digest="",
            prompt_tokens=0,
            cached_tokens=0,
            generated_tokens=0,
            left_out="",
            backbone_seconds=0.0,
            experiment_seconds=time.time() - self._since,
            spent=self._single.services.ledger.since(self._spent),
            images={digest: image for digest, image in self._session.images.items() if digest not in known},
        )


def _running_cell() -> _Cell:
    """Returns the cell that IPython runs; number 0 without code elsewhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return _Cell(0, "")
    return _Cell(shell.execution_count, shell.history_manager.input_hist_raw[-1])


def _show(parts: list[Part], labels: list[str]) -> None:
    if not parts:
        return
    if display := find_display():
        from IPython.display import HTML

        display(HTML(render_parts(parts, labels)))
        return
    for part in parts:
        if isinstance(part, EncodedImage):
            print(f"<picture {part.digest[:8]}, {part.pixels.shape[1]} x {part.pixels.shape[0]} pixels>")
        else:
            print(part, end="" if part.endswith("\n") else "\n")
