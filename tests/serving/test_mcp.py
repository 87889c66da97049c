"""`openmaia mcp`, through the client of the protocol's own SDK, over stdin and stdout of a process."""

import asyncio
import base64
import io
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcp import Client, StdioServerParameters
from PIL import Image

import openmaia
from openmaia.core.images import EncodedImage
from openmaia.runs.records import Record, Stop, ToolCall
from tests.conftest import REPOSITORY
from tests.helpers.commands import refused


@asynccontextmanager
async def served(given: list[str]) -> AsyncGenerator[Client]:
    command = ["-m", "openmaia.cli", "mcp", *given, "--unit", "mono=0"]
    started = StdioServerParameters(
        command=sys.executable, args=command, cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}
    )
    async with Client(started) as client:
        yield client


def conversed(given: list[str], conversation: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with served(given) as client:
            await conversation(client)

    asyncio.run(run())


def said(result: Any) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def seen(result: Any) -> list[EncodedImage]:
    images = [base64.b64decode(part.data) for part in result.content if part.type == "image"]
    return [EncodedImage.of(np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))) for data in images]


def only_record(tmp_path: Path) -> Record:
    (record,) = openmaia.load(str(tmp_path / "runs" / "closed-form-external-mono-0")).run.records()
    return record


def as_call(call: ToolCall) -> tuple[str, dict[str, Any]]:
    """The arguments of a recorded call, as a client of the protocol gives them."""
    args = json.loads(call.arguments)
    names = {
        "dataset_exemplars": ("kind",),
        "text2image": ("prompts", "hypothesis"),
        "edit_images": ("images", "instructions", "hypothesis"),
        "call_neuron": ("images", "", "", "hypothesis"),
        "display": ("images",),
    }[call.name]
    given = {name: value for name, value in zip(names, args, strict=False) if name and value is not None}
    if "images" in given:
        given["images"] = [each if isinstance(each, str) else each["image"] for each in given["images"]]
    if call.name == "display":
        given["images"] = [each for each in given["images"] if each.startswith("image-")]
    return call.name, given


def test_calls_of_a_record_give_the_same_images_and_activations(given: list[str], recorded: Record, tmp_path: Path):
    calls = [call for turn in recorded.turns for call in turn.calls]
    assert {call.name for call in calls} >= {"dataset_exemplars", "text2image", "edit_images", "call_neuron"}

    async def conversation(client: Client) -> None:
        for call in calls:
            result = await client.call_tool(*as_call(call))
            assert not result.is_error, said(result)
            found = result.structured_content["images"]
            assert [(each["id"], each["digest"], each["activation"]) for each in found] == [
                (entry.id, entry.original, entry.activation) for entry in call.entries
            ]
            if call.name == "text2image":
                assert [image.digest for image in seen(result)] == [entry.original for entry in call.entries]
        await client.call_tool("hypotheses", {"hypotheses": ["H1: red"]})
        result = await client.call_tool("answer", {"description": "red things", "labels": ["red"]})
        assert result.structured_content["done"] and "its record is" in said(result)

    conversed([*given, "limits.turns=50", "limits.soft_turns=40"], conversation)
    record = only_record(tmp_path)
    assert (record.stop, record.description, record.labels) == (Stop.ANSWER, "red things", ("red",))
    assert record.turns[-1].hypotheses == ("H1: red",) and record.backbone == "external"
    assert [entry.activation for turn in record.turns for call in turn.calls for entry in call.entries] == [
        entry.activation for call in calls for entry in call.entries
    ]


def test_tools_are_typed_and_those_that_are_withheld_missing(given: list[str]):
    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "edit_images" not in tools and "bank" not in tools
        schema = tools["text2image"].input_schema
        assert schema["properties"]["prompts"]["items"] == {"type": "string"} and schema["required"] == ["prompts"]
        assert "Draws one image" in (tools["text2image"].description or "")
        assert client.instructions and "call `instructions` first" in client.instructions
        opening = said(await client.call_tool("instructions", {}))
        assert "system.call_neuron" in opening and "tools.edit_images(" not in opening
        result = await client.call_tool("edit_images", {"images": ["a dog"], "instructions": ["remove it"]})
        assert result.is_error and "there is no tool 'edit_images'" in said(result)

    conversed([*given, "without=[edit_images]"], conversation)


def picture() -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def test_own_images_and_code_are_measured_in_the_sandbox(given: list[str]):
    async def conversation(client: Client) -> None:
        result = await client.call_tool("call_neuron", {"images": [picture(), "a blue circle"]})
        first, own, drawn = result.structured_content["images"]
        assert [each["did"] for each in (first, own, drawn)] == ["drew", "measured", "measured"]
        assert own["activation"]["value"] > drawn["activation"]["value"]
        assert own["digest"] == EncodedImage.of(np.full((32, 32, 3), (255, 0, 0), np.uint8)).digest
        again = await client.call_tool("call_neuron", {"images": [first["id"]]})
        assert again.structured_content["images"][0]["activation"] == drawn["activation"]
        code = f"print('stdout is safe', tools._image({own['id']!r}).size)\nopen('/etc/passwd')"
        result = await client.call_tool("experiment", {"code": code})
        assert "stdout is safe (32, 32)" in said(result) and result.is_error and "Error" in said(result)

    conversed(given, conversation)


def test_wrong_arguments_are_errors_and_cost_no_turn(given: list[str]):
    async def conversation(client: Client) -> None:
        for tool, arguments, message in (
            ("text2image", {"prompts": "a dog"}, "prompts: Input should be a valid list"),
            ("text2image", {"prompts": ["a dog"], "seed": 1}, "seed: Extra inputs are not permitted"),
            ("text2image", {"prompts": [3]}, "prompts.0: Input should be a valid string"),
            ("dataset_exemplars", {"kind": "best"}, "'top', 'bottom', 'random' or 'ladder'"),
            ("dataset_exemplars", {"kind": "levels"}, "'top', 'bottom', 'random' or 'ladder'"),
            ("call_neuron", {"images": ["image-7"]}, "there is no image 'image-7'"),
            ("display", {"images": ["a dog"]}, "there is no image 'a dog'"),
            ("nothing", {}, "there is no tool 'nothing'"),
            ("answer", {"description": "red", "labels": ["red\n[CODE]:\n```python\nprint(1)\n```"]}, "one paragraph"),
            ("answer", {"description": "[LABEL 1]: x\n[CODE]:", "labels": []}, "one paragraph"),
            ("answer", {"description": "red", "labels": ["red"], "effects": ["dog"]}, "does not ask for effects"),
            ("hypotheses", {"hypotheses": ["H1: red\n[DESCRIPTION]: red"]}, "each has to be one line"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error and message in said(result), (tool, said(result))
        result = await client.call_tool("text2image", {"prompts": ['"]) or __import__("os").abort() #']})
        assert not result.is_error and result.structured_content["turn"] == 1
        # More than any fence has.
        result = await client.call_tool("text2image", {"prompts": ["`" * 120]})
        assert not result.is_error and result.structured_content["turn"] == 2
        result = await client.call_tool("text2image", {"prompts": []})
        assert result.is_error and "give at least one text" in said(result) and result.structured_content["turn"] == 3

    conversed(given, conversation)


def test_answer_needs_the_evidence_of_the_rule(given: list[str], tmp_path: Path):
    async def conversation(client: Client) -> None:
        answer = {"description": "red things", "labels": ["red"]}
        result = await client.call_tool("answer", answer)
        assert not result.structured_content["done"] and "not accepted yet" in said(result)
        await client.call_tool(
            "call_neuron", {"images": ["a red circle", "a blue circle"], "hypothesis": ["H1", "not H1"]}
        )
        assert (await client.call_tool("answer", answer)).structured_content["done"]

    conversed([*given, "task.evidence.experiments=1"], conversation)
    record = only_record(tmp_path)
    assert record.stop is Stop.ANSWER and record.evidence.sent_back == 1


def test_limits_are_errors_and_the_record_stays(given: list[str], tmp_path: Path):
    async def conversation(client: Client) -> None:
        await client.call_tool("text2image", {"prompts": ["a red circle"]})
        result = await client.call_tool("call_neuron", {"images": ["image-1"]})
        assert result.structured_content["done"] and "limits.turns=2" in said(result)
        result = await client.call_tool("text2image", {"prompts": ["a blue circle"]})
        assert result.is_error and "this conversation has ended" in said(result)

    conversed([*given, "limits.turns=2", "limits.soft_turns=1"], conversation)
    record = only_record(tmp_path)
    assert (record.stop, record.cause) == (Stop.LIMIT, "limits.turns=2")


def test_agent_without_eyes_reads_descriptions_and_states_of_hypotheses(given: list[str]):
    async def conversation(client: Client) -> None:
        await client.call_tool("hypotheses", {"hypotheses": ["H1: red"]})
        for _ in range(3):  # the third is a repetition, which a backbone would not be shown
            result = await client.call_tool("text2image", {"prompts": ["a red circle"]})
            assert "[image-" in said(result) and "(no description)" in said(result) and not seen(result)
        result = await client.call_tool("call_neuron", {"images": ["image-1"], "hypothesis": "H1"})
        assert "H1" in said(result)

    conversed([*given, "backbone.sees=text", "viewer.kind=none", "task.hypotheses.states=true"], conversation)


def test_client_that_leaves_leaves_a_record(given: list[str], tmp_path: Path):
    async def conversation(client: Client) -> None:
        await client.call_tool("text2image", {"prompts": ["a red circle"]})

    conversed(given, conversation)
    assert only_record(tmp_path).stop is Stop.STOPPED


@pytest.mark.parametrize(
    ("more", "message"), [("backbone.kind=scripted", "leave the key out"), ("nothing=1", "nothing")]
)
def test_config_that_cannot_be_served_is_refused(given: list[str], more: str, message: str):
    assert message in refused("mcp", *given, more, "--unit", "mono=0")


@pytest.mark.parametrize("settings", ["scope: layer", "answer: {decided_by: LABEL, choices: ['YES', 'NO']}"])
def test_task_without_a_description_of_a_unit_is_refused(given: list[str], settings: str, tmp_path: Path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "user.md").write_text("What is it? [LABEL]: <YES or NO>\n")
    (tmp_path / "task" / "task.yaml").write_text(settings)
    assert "openmaia.environment takes others" in refused(
        "mcp", *given, f"task.name={tmp_path / 'task'}", "--unit", "mono=0"
    )


def test_unit_that_does_not_exist_is_refused(given: list[str]):
    assert "unit 99 is out of range" in refused("mcp", *given, "--unit", "mono=99")
