"""The tools of `openmaia mcp`: each is its arguments, and the experiment that a call of it runs.

The experiment is Python code like that of any agent, so that the sandbox, the checks of arguments, the limits and the
record are those of an investigation.
"""

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from openmaia.core.tools import BANK

_ID = re.compile(r"image-\d+")
_IMAGES = (
    "Images by their ids, such as image-3. A text that is no id is a prompt, which is drawn first; data:image/png;base64,… is "
    "an image of yours."
)
_HYPOTHESIS = (
    'The hypothesis that the images test, such as "H1", or "not H1" for its controls: one for all, or one for each.'
)
NamedHypothesis = str | list[str | None] | None


class Arguments(BaseModel):
    """The arguments of a tool, whose name is `tool` and whose description is the docstring of the class."""

    model_config = ConfigDict(extra="forbid", strict=True)
    tool: ClassVar[str]


class Experiment(Arguments):
    """A tool that runs an experiment."""

    @abstractmethod
    def code(self) -> str:
        """Returns the experiment. Every value in it is a literal."""

    def ids(self) -> Iterator[str]:
        """Yields the ids of the images that it takes."""
        yield from ()


class DatasetExemplars(Experiment):
    """Shows images of the dataset with the unit's activations: those that excite it most (top) or least (bottom), random
    ones, or some from the lowest to the highest (ladder)."""

    tool = "dataset_exemplars"
    kind: Literal["top", "bottom", "random", "ladder"] = "top"

    def code(self) -> str:
        return _show("activation, image", f"tools.dataset_exemplars(system, kind={self.kind!r})", "activation")


class BankLookup(Experiment):
    """Looks up images that were drawn and measured before, the same for all units, with their prompts and the unit's
    activations. They cost nothing. top, bottom, random: how many of those that excite it most, least, and of random ones."""

    tool = BANK
    top: int = 15
    bottom: int = 0
    random: int = 0

    def code(self) -> str:
        found = f"tools.bank(system, top={self.top!r}, bottom={self.bottom!r}, random={self.random!r})"
        return _show("activation, image, prompt", found, "prompt, activation")


class Text2Image(Experiment):
    """Draws one image for each prompt, and shows them. A repeated prompt gives another image each time. Nothing is measured
    yet: call_neuron does."""

    tool = "text2image"
    prompts: list[str]
    hypothesis: NamedHypothesis = Field(None, description=_HYPOTHESIS)

    def code(self) -> str:
        return _show("image", f"tools.text2image({self.prompts!r}{_named(self.hypothesis)})")


class CallNeuron(Experiment):
    """Measures the unit's activation for each image, and shows the images with the region in which the unit responds. The
    percentile is the share of dataset images with a lower activation: 99 is high, 50 is nothing special."""

    tool = "call_neuron"
    images: list[str] = Field(description=_IMAGES)
    hypothesis: NamedHypothesis = Field(None, description=_HYPOTHESIS)

    def code(self) -> str:
        measured = f"zip(*system.call_neuron({_images(self.images)}{_named(self.hypothesis)}))"
        return _show("activation, image", measured, "activation")

    def ids(self) -> Iterator[str]:
        return filter(_ID.fullmatch, self.images)


class EditImages(Experiment):
    """Edits each image by its instruction, such as "replace the crane with a boat" or "remove the desk", and shows each
    original before its edit."""

    tool = "edit_images"
    images: list[str] = Field(description=_IMAGES)
    instructions: list[str]
    hypothesis: NamedHypothesis = Field(None, description=_HYPOTHESIS)

    def code(self) -> str:
        named = f"{_images(self.images)}, {self.instructions!r}{_named(self.hypothesis)}"
        return _show("image, caption", f"zip(*tools.edit_images({named}))", "caption")

    def ids(self) -> Iterator[str]:
        return filter(_ID.fullmatch, self.images)


class DescribeImages(Experiment):
    """Asks another observer to describe each image in words."""

    tool = "describe_images"
    images: list[str] = Field(description="Images by their ids, such as image-3.")

    def code(self) -> str:
        return f"print(tools.describe_images({_images(self.images)}, {self.images!r}))"

    def ids(self) -> Iterator[str]:
        yield from self.images


class SummarizeImages(Experiment):
    """Asks another observer what the images have in common."""

    tool = "summarize_images"
    images: list[str] = Field(description="Images by their ids, such as image-3.")

    def code(self) -> str:
        return f"print(tools.summarize_images({_images(self.images)}))"

    def ids(self) -> Iterator[str]:
        yield from self.images


class Display(Experiment):
    """Shows images again: masked, with the region in which the unit responds where it was measured, or as they are."""

    tool = "display"
    images: list[str] = Field(description="Images by their ids, such as image-3.")
    view: Literal["masked", "original"] = "masked"

    def code(self) -> str:
        return f"tools.display([image.{self.view} for image in {_images(self.images)}])"

    def ids(self) -> Iterator[str]:
        yield from self.images


class RunCode(Experiment):
    """Runs Python code in the sandbox, with `system` and `tools` as `instructions` describes them. Variables stay defined.
    tools._image("image-3") is an image of earlier calls. Only what the code prints or displays comes back."""

    tool = "experiment"
    source: str = Field(description="Python code.", alias="code")

    def code(self) -> str:
        return self.source


class Hypotheses(Arguments):
    """Replaces the list of hypotheses, most likely first, such as "H1: dogs". It is recorded with the calls that follow,
    and costs no turn."""

    tool = "hypotheses"
    hypotheses: list[str]


class Answer(Arguments):
    """Answers what the unit responds to, in one or two sentences. Each label names one thing in a few words, and can be
    drawn. An empty description, without labels, says that the evidence supports none. The answer is accepted, and ends the
    conversation, once the evidence that `instructions` names exists; otherwise the result says what it lacks."""

    tool = "answer"
    description: str
    labels: list[str] = []
    effects: list[str] = Field(
        [], description="If the question asks for [EFFECT]: the classes that the unit raises most."
    )


class Instructions(Arguments):
    """Returns the question, the rules, and what the code of `experiment` can call. Call it first; it costs no turn. Where
    they speak of messages with [CODE] or an answer, call the tools instead."""

    tool = "instructions"


TOOLS: dict[str, type[Arguments]] = {
    each.tool: each
    for each in (
        Instructions,
        DatasetExemplars,
        BankLookup,
        Text2Image,
        CallNeuron,
        EditImages,
        DescribeImages,
        SummarizeImages,
        Display,
        RunCode,
        Hypotheses,
        Answer,
    )
}


def _show(names: str, found: str, texts: str = "") -> str:
    """Returns code that displays the images that a call found, each after some of the other values."""
    shown = f"{texts}, image" if texts else "image"
    return f"for {names} in {found}:\n    tools.display({shown})"


def _images(images: list[str]) -> str:
    return f"[{', '.join(f'tools._image({each!r})' if _ID.fullmatch(each) else repr(each) for each in images)}]"


def _named(hypothesis: NamedHypothesis) -> str:
    return "" if hypothesis is None else f", hypothesis={hypothesis!r}"
