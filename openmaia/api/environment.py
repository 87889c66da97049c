"""`openmaia.environment`: the laboratory for an agent of the user."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.core.secrets import boundary
from openmaia.serving.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openmaia.config.schema import Config


@boundary()
def environment(config: "Config | str | Path | Sequence[str]", **overrides: Any) -> Environment:
    """Lets an agent of yours investigate units: another framework, a policy in training, a person.

    The agent gets the messages that a backbone of OpenMAIA would get, and its replies are treated as those of a backbone:
    the same limits, sandbox and evidence rule. Everything runs in this process, without Ray. The records are added to the
    run `NAME-external` (NAME is the name of the run in the config).

    Args:
        config: A `Config` object, the name or path of a config, or a list of files and `key=value` overrides. What
            answers the agent's questions about images is its `viewer`.
        **overrides: Other settings by their config keys, such as `seed=1` or `limits={"turns": 8}`. `backbone` takes
            `{"agent": "NAME"}`, the name in the records, and `{"sees": "text"}` for an agent that takes no images.

    Returns:
        An object with the methods `reset(unit)`, `step(reply)` and `close()`. A context manager.

    Raises:
        UsageError: An argument is invalid, or another process works on the run directory.

    Example:
        >>> with openmaia.environment("demo") as laboratory:
        ...     step = laboratory.reset("stage4=66")
        ...     while not step.done:
        ...         step = laboratory.step(agent(step.openai_messages))
        >>> step.record.description, step.reward
    """
    backbone = {"kind": "external", **overrides.pop("backbone", {})}
    # A text alone would be the name of a network.
    source = [config] if isinstance(config, str) else config
    inputs = configure(source, "", backbone=backbone, overrides=overrides, function="openmaia.environment")
    view = PrintedProgress()
    # The units of the run are those of its records, so that every session has the same config.
    settings = replace(inputs.config, name=f"{inputs.config.name}-external", units="all")
    return Environment(settings, view.say, lambda done, total: view.progress("exemplars", done, total))
