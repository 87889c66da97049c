"""A task of inspect_ai: the evaluated model is the agent, and each sample is the investigation of one unit."""

# pyright: reportMissingImports=false
# inspect_ai is none of the packages of development: it holds fsspec and boto3 at older versions.

import asyncio
import atexit
import math
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    GenerateConfig,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError

from openmaia.api.environment import environment
from openmaia.core.messages import Message, Part, Reply, Role
from openmaia.models.backbones.chat_format import base64_png
from openmaia.serving.environment import Environment, Step

_SCORES = ("exact", "precision", "recall")
_RESULT = "openmaia"
"""The key of a sample's metadata with the result of its investigation."""


@task
def investigations(config: str, units: str, **overrides: Any) -> Task:
    """Lets a model investigate units, one after the other, and scores its labels where the truth of a unit is known.

    Args:
        config: Names of configs, files, and `key=value` overrides, separated by blanks.
        units: In the syntax of the config key `units`, such as "output=dog,cat".
        **overrides: As for `openmaia.environment`.

    Raises:
        UsageError: As for `openmaia.environment`, or there is no such unit.
    """
    laboratory = environment(config.split(), **overrides)
    atexit.register(laboratory.close)
    return Task(
        dataset=[Sample(input=unit, id=unit) for unit in laboratory.list_units(units)],
        solver=investigate(laboratory),
        scorer=labels(),
        config=GenerateConfig(max_tokens=laboratory.config.limits.reply_tokens),
    )


@solver
def investigate(laboratory: Environment) -> Solver:
    """Holds the conversations of the samples, one after the other."""
    lock = asyncio.Lock()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        async with lock:
            step = laboratory.reset(state.input_text)
            state.messages = [_converted(message) for message in step.messages]
            try:
                while not step.done:
                    state = await generate(state, tool_calls="none")
                    step = laboratory.step(_reply(state))
                    state.messages += [_converted(message) for message in step.messages]
            except LimitExceededError:  # of inspect_ai, which scores the sample all the same
                step = step if step.done else laboratory.stop()
                raise
            finally:
                if step.done:
                    state.metadata[_RESULT] = _result(step)
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def labels() -> Scorer:
    """Scores exact, precision and recall (see `openmaia.evaluation.truth`); NaN, which inspect_ai leaves out, where they are
    not defined."""

    async def score(state: TaskState, target: Target) -> Score:
        result = state.metadata[_RESULT]
        truth = result["truth"]
        return Score(
            value={name: math.nan if result[name] is None else result[name] for name in _SCORES},
            answer="; ".join(result["labels"]),
            explanation="the truth of the unit is not known" if truth is None else f"truth: {'; '.join(truth)}",
            metadata=result,
        )

    return score


def _result(step: Step) -> dict[str, Any]:
    record, match = step.record, step.match
    assert record is not None
    scores = (None, None, None) if match is None else (float(match.exact), match.precision, match.recall)
    return {
        **dict(zip(_SCORES, scores, strict=True)),
        "truth": None if match is None else list(match.truth),
        "description": record.description,
        "labels": list(record.labels),
        "stop": record.stop.value,
        "record": step.path,
    }


def _reply(state: TaskState) -> Reply:
    usage = state.output.usage
    return Reply(
        text=state.output.completion,
        prompt_tokens=usage.input_tokens if usage else 0,
        generated_tokens=usage.output_tokens if usage else 0,
    )


def _converted(message: Message) -> ChatMessage:
    match message.role:
        case Role.SYSTEM:
            return ChatMessageSystem(content=message.text)
        case Role.ASSISTANT:
            return ChatMessageAssistant(content=message.text)
        case Role.USER:
            return ChatMessageUser(content=[_content(part) for part in message.parts])


def _content(part: Part) -> ContentText | ContentImage:
    if isinstance(part, str):
        return ContentText(text=part.encode(errors="replace").decode())
    return ContentImage(image=f"data:image/png;base64,{base64_png(part)}")
