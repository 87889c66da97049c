"""Keeps reasoning that a server leaves in the text of a reply from being read as the reply."""

from openmaia.agent.tasks.ending import ending
from openmaia.agent.tasks.reasoning import Separated, separate

CUT_OFF = ("length", "max_tokens")  # finish reasons: the limit of tokens was reached
STOPPED_READING = "cut"
"""The finish reason of a stream that was not read to its end."""
# Incomplete replies without a mark, after which replies count as not beginning inside of reasoning.
_UNDECIDED = 3


class ReasoningStart:
    """What the replies of a model have shown about where its reasoning starts. Thread-safe.

    The chat templates of many models write the opening mark into the prompt. Their replies hold only the closing one,
    so that a draft inside of the reasoning looks like the reply until it comes. Therefore the first reply is read to
    its end.
    """

    def __init__(self):
        self.in_prompt: bool | None = None
        """Whether replies begin inside of reasoning. None before the first whole reply."""
        self._undecided = 0

    def is_complete(self, text: str, *, is_turn: bool, is_apart: bool, stop: str = "") -> bool:
        """Returns whether a reply that still arrives is complete, see `ending`. Reasoning never completes it.

        Args:
            is_apart: Whether the server sends reasoning in a field of its own.
            stop: A text at which the reply ends.
        """
        found = separate(text, is_open=self.in_prompt is True)
        is_known = self.in_prompt is not None or is_apart or bool(found.reasoning)
        is_stopped = bool(stop) and is_known and found.text.endswith(stop)
        return is_stopped or ending(found.text, is_turn and is_known) is not None

    def separate(self, text: str, finish: str) -> Separated:
        """Separates reasoning from a whole reply, and learns from it. `finish` is the server's reason, or STOPPED_READING."""
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
