"""The tool `edit_images`."""

from typing import TYPE_CHECKING, Any

from openmaia.agent.tools.arguments import check_hypotheses, check_text, check_texts
from openmaia.agent.tools.values import also_named, hypothesis_argument, image_of, is_prompt, listed, texts_of, wire
from openmaia.core.errors import ToolError
from openmaia.core.services import Edit, GeneratedImage
from openmaia.runs.records import Did

if TYPE_CHECKING:
    from openmaia.agent.tools.toolbox import Toolbox

_ORIGINAL, _EDITED = "Original Image", "Editing Prompt: "
"""The captions. The published code of MAIA has the same, and experiments may search for them."""


@also_named(
    base_images="images",
    image_list="images",
    editing_prompts="instructions",
    editing_instructions_list="instructions",
)
def edit_images(self: Any, images: list[Any], instructions: list[Any], hypothesis: Any = None) -> tuple[Any, ...]:
    """Edits each image by its instruction, such as "replace the crane with a boat" or "remove the desk".

    images: a list of images or of prompts, which are generated first. Returns two lists, (images, captions), in which
    each original stands before its edit: original, edited, original, edited, …
    """
    wired = [image if is_prompt(image) else wire(image) for image in listed(images)]
    answers = self._call("edit_images", wired, texts_of(instructions), *hypothesis_argument(hypothesis))
    return [image_of(self._call, answer["image"]) for answer in answers], [answer["caption"] for answer in answers]


def answer(toolbox: "Toolbox", images: Any, instructions: Any, hypothesis: Any = None) -> list[dict[str, Any]]:
    """Returns original, edit, original, edit, …, with their captions."""
    orders = check_texts(toolbox.check_count(instructions), "edit_images")
    given = toolbox.check_count(images)
    if len(given) != len(orders):
        raise ToolError(f"edit_images: {len(given)} images but {len(orders)} instructions; give one for each")
    tested = check_hypotheses(hypothesis, len(given))
    toolbox.check_images([image for image in given if not isinstance(image, str)])
    # Before anything is drawn, so that a call that is refused costs nothing.
    taken = iter([toolbox.take(image, "original") for image in given if not isinstance(image, str)])
    drawn = iter(toolbox.generate([check_text(image) for image in given if isinstance(image, str)]))
    bases = [next(drawn) if isinstance(image, str) else GeneratedImage(image=next(taken)) for image in given]
    requests = [
        Edit(image=base.image, instruction=order, seed=toolbox.derive_seed(f"{base.image.digest} {order}"))
        for base, order in zip(bases, orders, strict=True)
    ]
    edited = toolbox.context.services.editor.edit(requests)
    answers: list[dict[str, Any]] = []
    for image, base, order, result, name in zip(given, bases, orders, edited, tested, strict=True):
        toolbox.tell_missing(result, order)
        facts = {"prompt": image} if isinstance(image, str) else {"of": image.get("image", "")}
        original = toolbox.register_generated(base, Did.BASE, **facts)
        edit = toolbox.register_generated(result, Did.EDITED, name, prompt=order, of=original["image"])
        answers.append({"image": original, "caption": image if isinstance(image, str) else _ORIGINAL})
        answers.append({"image": edit, "caption": _EDITED + order})
    return answers
