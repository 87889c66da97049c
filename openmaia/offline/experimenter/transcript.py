"""Reads the measurements and the displayed images out of the messages of an investigation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from openmaia.core.images import EncodedImage
from openmaia.core.messages import Message, Role
from openmaia.core.services import BankWord
from openmaia.offline.experimenter.refutations import is_refutation, read_refuted

_EXEMPLAR = re.compile(r"^(?P<kind>top|random) (?P<rank>\d+): (?P<value>\S+) \(.*\)$", re.MULTILINE)
_MEASURED = re.compile(
    r"^(?P<stage>screen|control|edit) (?P<value>\S+) \((?P<scale>.*?)\) \| (?P<key>.*)$", re.MULTILINE
)
# Like any agent, this one has nothing but the text that it is shown.
NOT_DRAWN = re.compile(r"^note: could not draw .* of (?P<prompt>'.*'|\".*\")$", re.MULTILINE)
_VIEW = re.compile(r"\[\S+, (?P<view>original|masked)\]\s*$")

_SENT_BACK = "[EVIDENCE]:"
_BANK = re.compile(
    r"^\d+\. (?P<text>.+) \(bank, AUC (?P<auc>[01](?:\.\d+)?) on (?P<images>\d+) of (?P<of>\d+) images\)$", re.MULTILINE
)
_WITHHELD = re.compile(r"^Not available in this investigation: (.*)$", re.MULTILINE)


@dataclass(slots=True)
class SeenExemplar:
    """A top or random exemplar (`kind`). Images that were not displayed are None. In `masked`, parts to which the unit
    does not respond are dark."""

    kind: str
    activation: float
    original: EncodedImage | None = None
    masked: EncodedImage | None = None


@dataclass(slots=True)
class ControlView:
    """A displayed image of a hypothesis or of one of its controls."""

    activation: float
    original: EncodedImage
    masked: EncodedImage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EditEffect:
    """A unit's activations on an image before and after an edit."""

    base: str
    """The prompt of the image."""
    order: str
    """The editing instruction."""
    before: float
    after: float


@dataclass(slots=True)
class Transcript:
    """The content of a conversation, as far as the scripted experimenter uses it."""

    exemplars: list[SeenExemplar] = field(default_factory=list[SeenExemplar])
    views: dict[str, list[ControlView]] = field(default_factory=dict[str, list[ControlView]])
    """Displayed images from tests of hypotheses against controls, by prompt."""
    measured: dict[str, list[tuple[str, float]]] = field(default_factory=dict[str, list[tuple[str, float]]])
    """Pairs (key, activation) by stage: `screen`, `control` or `edit`. The key is a prompt, and for an edit `PROMPT =>
    INSTRUCTION`, or `PROMPT => as drawn` for the image before the edit."""
    has_logits: bool = False
    """Whether the unit is a class whose logits were measured. The activations of exemplars are then probabilities."""
    not_drawn: set[str] = field(default_factory=set[str])
    """Prompts that the generator could not draw completely."""
    bank: Sequence[BankWord] = ()
    """The words of the bank that the question names as hypotheses."""
    withheld: frozenset[str] = frozenset()
    """Tools that the agent may not use."""
    replies: int = 0
    refuted: frozenset[str] = frozenset()
    """Labels that failed a test after an answer."""
    sent_back: int = 0
    lacks_evidence: bool = False
    """Whether the latest message sends an answer back."""
    is_last_call: bool = False
    """Whether the latest message demands the final answer."""

    def views_of(self, prompt: str) -> list[ControlView]:
        """Returns the displayed images of a prompt; none if the generator could not draw it completely."""
        return [] if prompt in self.not_drawn else self.views.get(prompt, [])

    @property
    def edits(self) -> list[EditEffect]:
        return [
            # The experiment prints the activation on each image directly before the one on its edited version.
            EditEffect(base=key.partition(" => ")[0], order=key.partition(" => ")[2], before=before, after=after)
            for (as_drawn, before), (key, after) in pairwise(self.of("edit"))
            if as_drawn.endswith(" => as drawn") and not key.endswith(" => as drawn")
        ]

    def of(self, stage: str) -> list[tuple[str, float]]:
        """Returns what was measured in a stage, without prompts that the generator could not draw completely."""
        rows = self.measured.get(stage, [])
        return [(key, value) for key, value in rows if key.split(" => ")[0] not in self.not_drawn]


def withheld_tools(text: str) -> frozenset[str]:
    """Returns the names of the tools that the first message of an investigation withholds."""
    found = _WITHHELD.search(text)
    return frozenset(re.findall(r"tools\.(\w+)", found[1])) if found else frozenset()


def read_bank_words(messages: Sequence[Message]) -> list[BankWord]:
    """Returns the words of the bank that the question of an investigation names as hypotheses, the best first."""
    question = messages[1].text if len(messages) > 1 else ""
    return [
        BankWord(text=match["text"], auc=float(match["auc"]), images=int(match["images"]), of=int(match["of"]))
        for match in _BANK.finditer(question)
    ]


def read(messages: Sequence[Message]) -> Transcript:
    """Reads the messages of an investigation."""
    transcript = Transcript(replies=sum(message.role is Role.ASSISTANT for message in messages))
    transcript.withheld = withheld_tools(messages[0].text if messages else "")
    transcript.bank = read_bank_words(messages)
    observations = [message for message in messages[2:] if message.role is Role.USER]
    for message in observations:
        # The images of a test are neither exemplars nor of an experiment.
        if not is_refutation(message):
            _observe(message, transcript)
    transcript.refuted = frozenset[str]().union(*read_refuted(observations))
    last = messages[-1].text if transcript.replies else ""
    transcript.sent_back = sum(_SENT_BACK in message.text or is_refutation(message) for message in observations)
    transcript.lacks_evidence = _SENT_BACK in last
    transcript.is_last_call = "[DESCRIPTION]" in last
    return transcript


def _observe(message: Message, transcript: Transcript) -> None:
    view = prompt = ""
    for part in message.parts:
        if isinstance(part, EncodedImage):
            _attach(part, view, prompt, transcript)
            continue
        for match in _EXEMPLAR.finditer(part):
            transcript.exemplars.append(SeenExemplar(kind=match["kind"], activation=float(match["value"])))
        for match in _MEASURED.finditer(part):
            transcript.has_logits |= match["scale"] == "logit"
            transcript.measured.setdefault(match["stage"], []).append((match["key"], float(match["value"])))
            prompt = match["key"] if match["stage"] == "control" else ""
        transcript.not_drawn.update(match["prompt"][1:-1] for match in NOT_DRAWN.finditer(part))
        label = _VIEW.search(part)
        view = label["view"] if label else ""


def _attach(image: EncodedImage, view: str, prompt: str, transcript: Transcript) -> None:
    # An image without a prompt belongs to the latest exemplar.
    if prompt and view == "masked":
        transcript.views[prompt][-1].masked = image
    elif prompt:
        activation = transcript.measured["control"][-1][1]
        transcript.views.setdefault(prompt, []).append(ControlView(activation, image))
    elif transcript.exemplars and view == "masked":
        transcript.exemplars[-1].masked = image
    elif transcript.exemplars:
        transcript.exemplars[-1].original = image
