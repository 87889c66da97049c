"""Keeps reasoning that a server leaves in the text of a reply from being read as the reply."""

from openmaia.agent.tasks.ending import ending
from openmaia.agent.tasks.reasoning import Separated, separate

CUT_OFF = ("length", "max_tokens")
"""Values of the finish reason by which servers say that a reply reached the limit of tokens."""
STOPPED_READING = "cut"
"""The finish reason of a stream that was not read to its end."""
_UNDECIDED = 3
"""Number of incomplete replies without a mark, after which a model counts as one whose replies do not begin inside of
reasoning."""


class ReasoningStart:
    """What is known about where the reasoning of a model starts, from its replies. It is thread-safe.

    The chat templates of many models write the mark at the start of reasoning into the prompt. Their replies hold only
    the mark at the end, so that a draft inside of the reasoning looks like the reply until this mark comes. Therefore
    the first reply of a model is read to its end.
    """

    def __init__(self):
        """Starts without knowledge."""
        self.in_prompt: bool | None = None
        """Whether replies begin inside of reasoning. None before the first whole reply."""
        self._undecided = 0

    def is_complete(self, text: str, *, is_turn: bool, is_apart: bool, stop: str = "") -> bool:
        """Returns whether a reply that still arrives is complete, see `ending`. Reasoning never completes it.

        Args:
            text: What has arrived.
            is_turn: Whether the reply is a turn of an investigation.
            is_apart: Whether the server sends reasoning in a field of its own.
            stop: A text at which the reply ends.
        """
        found = separate(text, is_open=self.in_prompt is True)
        is_known = self.in_prompt is not None or is_apart or bool(found.reasoning)
        is_stopped = bool(stop) and is_known and found.text.endswith(stop)
        return is_stopped or ending(found.text, is_turn and is_known) is not None

    def separate(self, text: str, finish: str) -> Separated:
        """Separates the reasoning in a reply from its text, and learns from it.

        Args:
            text: The whole reply.
            finish: Why the reply ended: the server's finish reason, or STOPPED_READING.
        """
        found = separate(text, is_open=self.in_prompt is True)
        if found.is_unannounced:
            self.in_prompt = True
        elif self.in_prompt and not found.text and finish not in CUT_OFF:
            return Separated("", text)  # the model has ended its reply itself, without any reasoning
        elif self.in_prompt is None and text.strip():
            self._undecided += 1
            if found.reasoning or finish not in (STOPPED_READING, *CUT_OFF) or self._undecided >= _UNDECIDED:
                self.in_prompt = False
        return found
