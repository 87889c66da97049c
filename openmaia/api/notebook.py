"""`openmaia.open`: a person investigates a unit in a notebook with the tools of the agent, without a sandbox."""

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmaia.agent.context import InvestigationContext
from openmaia.agent.experiments import ToolSession, merge_parts
from openmaia.agent.tools import api
from openmaia.agent.tools.toolbox import Toolbox
from openmaia.api.html import find_display, render_parts
from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.api.session import open_unit
from openmaia.assembly.single import SingleUnit
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import Part
from openmaia.core.secrets import boundary
from openmaia.runs.records import ExperimentStatus, Record, Stop, Turn
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.api.inputs import NetworkSource
    from openmaia.datasets.memory import IndexedImages
    from openmaia.models.targets.preprocess import Preprocess
    from openmaia.models.targets.transforms import Transform


@boundary()
def open(
    model: "NetworkSource",
    layer: str,
    unit: int | str | None = None,
    *,
    images: "str | Path | Mapping[str, Any] | IndexedImages | Iterable[Any] | None" = None,
    preprocess: "Transform | Preprocess | Mapping[str, Any] | None" = None,
    **overrides: Any,
) -> "tuple[api.System, NotebookTools]":
    """Lets a person investigate one unit in a notebook, with the tools that agents have.

    Everything runs in this process, without a sandbox. The object `system` measures the activation of the unit on
    images. The object `tools` returns exemplars, and generates, edits and displays images. All calls are recorded.

    `tools.answer(description, *labels)` ends the investigation, and `tools.close()` ends it without an answer. Both add
    the record to the run `NAME-human` (NAME is the name of the run in the config). Earlier records of the unit are
    kept. If `model` is a `torch.nn.Module`, it stays in evaluation mode until the investigation ends.

    Args:
        model: As for `openmaia.investigate`.
        layer: The name of the layer, as for `openmaia.investigate`, or the unit as `LAYER=INDEX`, such as `layer4=122`.
        unit: The index of the unit in the layer. None if `layer` names the unit.
        images: As for `openmaia.investigate`.
        preprocess: As for `openmaia.investigate`.
        **overrides: Other settings by their config keys, as for `openmaia.investigate`.

    Returns:
        The objects `system` and `tools`.

    Raises:
        UsageError: The unit does not exist, or another argument is invalid.

    Example:
        >>> system, tools = openmaia.open("configs/demo.yaml", "stage4=66")
        >>> activations, seen = system.call_neuron(tools.text2image(["a guitar on grass", "grass"]))
        >>> tools.display(*seen)
        >>> tools.answer("stringed instruments", "guitar")
    """
    spec = layer if unit is None else f"{layer}={unit}"
    inputs = configure(model, spec, images=images, preprocess=preprocess, overrides=overrides, function="openmaia.open")
    view = PrintedProgress()
    with ExitStack() as stack:
        single = stack.enter_context(
            open_unit(inputs, view.say, lambda done, total: view.progress("exemplars", done, total), is_human=True)
        )
        # The units of a person's run are those of its records, so that every session has the same config.
        config = replace(single.config, name=f"{single.config.name}-human", units="all")
        desk = _Desk(single, Run.create(config), stack.pop_all())
    tools = NotebookTools(desk, list(single.options.user_tools))
    return api.System(tools.call), tools


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


class _Desk:
    """Executes and records the calls of a person, as one turn. `resources` is closed at the end."""

    def __init__(self, single: SingleUnit, run: Run, resources: ExitStack):
        self._single, self._run, self._resources = single, run, resources
        context = InvestigationContext(
            unit=single.unit,
            task=single.task,
            services=single.services,
            options=single.options,
            run_seed=single.config.seed,
        )
        self._session = ToolSession(Toolbox(context))
        self._shown = 0
        self._started = time.time()
        self._ended = ""
        """The path of the record."""

    def call(self, name: str, *args: Any) -> Any:
        self._check_open()
        try:
            return self._session.serve(name, list(args), {})
        except ToolError as error:
            raise ValueError(error.message) from None
        finally:
            new = self._session.parts[self._shown :]
            self._shown = len(self._session.parts)
            _show(new, [image.label for image in self._session.calls[-1].given] if new else [])

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(f"this investigation has ended with the record {self._ended}; call openmaia.open again")

    def finish(self, stop: Stop, description: str, labels: tuple[str, ...]) -> str:
        self._check_open()
        record = Record(
            unit=self._single.unit,
            replicate=0,
            stop=stop,
            cause="",
            description=description,
            labels=tuple(label for label in labels if label),
            backbone="human",
            task=self._single.task.name,
            sandbox="none (a person)",
            prompts=(),
            turns=(self._turn(),),
            config=self._single.options.config,
            preprocessing=self._single.options.preprocessing,
            started=self._started,
        )
        self._ended = self._run.record_path(self._run.add(record))
        self._resources.close()
        return self._ended

    def _turn(self) -> Turn:
        return Turn(
            index=0,
            reply="",
            code="",
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
            experiment_seconds=time.time() - self._started,
            spent=self._single.services.ledger.spent(),
            images=self._session.images,
        )


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
