"""Contrasts for the labels of an answer."""

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
    """One contrast of a label."""

    label: str
    prompt: str
    contrast_prompt: str
    shows: str
    """What the near miss shows in place of the label."""
    source: str
    """How the contrast was found, in words."""


class Contrasts(Protocol):
    """Finds contrasts for the labels of an answer."""

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns at most `n` contrasts: one for each label in turn, then a second one for each, and so on.

        Near misses should show none of the labels. They may show dropped hypotheses, which come latest first. `n` is at
        least the number of labels.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenContrasts:
    """Asks a language model for the contrasts of all labels, and once more for those that its reply lacks."""

    backbone: Backbone
    instructions: str
    """The text of `contrasts.md`."""
    run_seed: int
    """The seed of the investigation."""
    reply_tokens: int

    def find(self, labels: Sequence[str], dropped: Sequence[str], n: int) -> list[Contrast]:
        """Returns fewer than `n` contrasts if the model does not write enough usable ones."""
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
    """Parses the lines `label number | prompt | contrast prompt | what it shows` of a reply; others are ignored.

    The label number counts from 1; the third field may be missing. A contrast is left out if its two prompts have the
    same words, or if the second has all words of a label.
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
    """Returns the index of the label that a field names; None if it names none."""
    # Models write the number or the name: "1", "[1]", "Label 1", "1. dog" or "dog".
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
    return frozenset(word.removesuffix("s") for word in re.findall(r"\w+", text.casefold()))
