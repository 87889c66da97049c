"""The tool `text2image`."""

from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import check_hypotheses, check_texts
from openmaia.agent.tools.values import also_named, hypothesis_argument, image_of, texts_of
from openmaia.runs.records import Did

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox


@also_named(prompt_list="prompts")
def text2image(self: Any, prompts: list[Any], hypothesis: Any = None) -> list[Any]:
    """Generates one image per prompt and returns the list of images. A repeated prompt gives another image each time."""
    return [
        image_of(self._call, answer)
        for answer in self._call("text2image", texts_of(prompts), *hypothesis_argument(hypothesis))
    ]


def answer(toolbox: "Toolbox", prompts: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
    """Tells the agent which prompts are those of the example in the instructions."""
    wanted = check_texts(toolbox.check_count(prompts), "text2image")
    tested = check_hypotheses(hypothesis, len(wanted))
    generated = toolbox.generate(wanted)
    task, is_whole = toolbox.context.task, not toolbox.context.options.without
    copied = [prompt for prompt in dict.fromkeys(wanted) if task.has_example(prompt, is_whole=is_whole)]
    for prompt in copied:
        toolbox.tell(
            f"{prompt!r} is from the example in your instructions, which is about another unit: its image does not count as "
            "evidence. Write prompts for what the exemplars of this unit show"
        )
    return [
        toolbox.register_generated(image, Did.COPIED if prompt in copied else Did.DREW, name, prompt=prompt)
        for image, prompt, name in zip(generated, wanted, tested, strict=True)
    ]
