"""Writes pairs of prompts that test a label, the short name of what a unit responds to.

Such a pair is called a contrast. Its first prompt shows the label. Its second prompt shows a near miss: the same scene
with one thing changed, so that the label no longer holds.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Protocol

from openmaia.agent.tools.arguments import MAX_TEXT
from openmaia.agent.tools.seeds import seed
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.core.services import Backbone

WRITTEN = "written by the backbone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The prompts of two images, with which a label (the short name of what a unit responds to) is tested.

    The first image shows the label. The second shows a near miss: the same scene without what the label names.
    """

    label: str
    prompt: str
    """Prompt of the image that shows the label."""
    contrast_prompt: str
    """Prompt of the near miss."""
    shows: str
    """Names the thing that the second image shows instead of the label."""
    source: str
    """Says how the contrast was found, in words such as "written by the backbone"."""


class Contrasts(Protocol):
    """Interface of the ways to write test prompts for the labels of an answer (short names of what a unit responds to).

    Each test is a `Contrast`: a prompt that shows a label, and a prompt of a near miss. The near miss is the same scene
    with one thing changed, so that the label no longer holds.
    """

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns at most `n` contrasts, for the labels in turn: one for each, then a second one for each, and so on.

        A contrast is a prompt that shows a label, and one of a near miss: the same scene without what the label names.

        Args:
            labels: The labels of an answer. Near misses should show none of them.
            dropped: Hypotheses that the agent considered and rejected, the latest first. They may serve as near misses.
            n: The number of contrasts that are wanted; at least the number of labels.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenContrasts:
    """Asks a language model for contrasts (pairs of test prompts, see `Contrasts`) of all labels of an answer.

    If its reply lacks some of them, it is asked once more for these.
    """

    backbone: Backbone
    """The language model."""
    instructions: str
    """The system prompt, `contrasts.md` of the task."""
    run_seed: int
    """The seed of the investigation, from which the seeds of the requests are derived."""
    reply_tokens: int
    """Limit of the tokens that the model generates for one reply."""

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns at most `n` contrasts (pairs of test prompts); fewer if the model does not write enough usable ones.

        See `Contrasts.find` for the arguments.
        """
        labels = list(dict.fromkeys(labels))
        missing = {label: len(range(at, n, len(labels))) for at, label in enumerate(labels)}
        contrasts: dict[tuple[str, str], Contrast] = {}
        messages = [system(self.instructions)]
        for attempt in range(2):
            if not any(missing.values()):
                break
            messages.append(user(_request(missing, dropped)))
            reply = self._ask(messages, attempt)
            messages.append(assistant(reply))
            for contrast in parse_contrasts(reply, labels):
                key = (contrast.prompt.casefold(), contrast.contrast_prompt.casefold())
                if missing[contrast.label] and key not in contrasts:
                    contrasts[key] = contrast
                    missing[contrast.label] -= 1
        by_label = [[contrast for contrast in contrasts.values() if contrast.label == label] for label in labels]
        return [contrast for contrast in chain.from_iterable(zip_longest(*by_label)) if contrast is not None]

    def _ask(self, messages: Sequence[Message], attempt: int) -> str:
        number = seed(self.run_seed, "confirm", messages[1].text, attempt)
        chat = Chat(conversation="", messages=tuple(messages), seed=number, max_tokens=self.reply_tokens)
        return self.backbone.reply([chat])[0].text


def parse_contrasts(reply: str, labels: Sequence[str]) -> list[Contrast]:
    """Parses the contrasts (pairs of prompts that test a label) in a reply.

    A contrast is a line `label number | prompt | contrast prompt | what it shows`. Other lines are ignored. The label
    number counts from 1. "What it shows" names the thing that the contrast prompt shows instead of the label, in the
    same scene. A contrast is left out if its two prompts have the same words, or if the contrast prompt contains all
    words of one of the labels.
    """
    contrasts: list[Contrast] = []
    for line in reply.splitlines():
        fields = [field for part in line.split("|") if (field := part.strip(" \t`*_\"'“”-•>"))]
        at = _label_number(fields[0], labels) if len(fields) in (3, 4) else None
        if at is None or max(map(len, fields)) > MAX_TEXT:
            continue
        prompt, contrast_prompt, shows = fields[1], fields[2], fields[-1]
        shown = _words(contrast_prompt)
        if (
            shown
            and shown != _words(prompt)
            and not any((words := _words(label)) and words <= shown for label in labels)
        ):
            prompts = {"prompt": prompt, "contrast_prompt": contrast_prompt, "shows": shows}
            contrasts.append(Contrast(label=labels[at], **prompts, source=WRITTEN))
    return contrasts


def _label_number(field: str, labels: Sequence[str]) -> int | None:
    """Returns the index of the label that the first field of a line names; None if it names none.

    Models write the number or the name: "1", "[1]", "Label 1", "1. dog" or "dog".
    """
    number = re.fullmatch(r"(?:\W*\d+\W+)??\W*(?:label\W*)?(\d{1,6})\W*", field, re.IGNORECASE)
    if number:
        return int(number[1]) - 1 if 1 <= int(number[1]) <= len(labels) else None
    words = _words(re.sub(r"^\W*\d+\W+", "", field))
    return next((at for at, label in enumerate(labels) if _words(label) == words), None)


def _request(missing: Mapping[str, int], dropped: Sequence[str]) -> str:
    counts = [
        f"{at}. {label}: {count or 'no'} more pairs" for at, (label, count) in enumerate(missing.items(), start=1)
    ]
    rejected = ["", "Rejected hypotheses:", *(f"- {hypothesis}" for hypothesis in dropped)] if dropped else []
    return "\n".join(["Labels, and how many pairs to write for each:", *counts, *rejected])


def _words(text: str) -> frozenset[str]:
    """Returns the words of a text in lower case and without plural s."""
    return frozenset(word.removesuffix("s") for word in re.findall(r"\w+", text.casefold()))
