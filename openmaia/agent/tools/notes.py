"""What the agent is told about its prompts."""

from openmaia.runs.records import PromptFault, PromptNote


def write_note(note: PromptNote) -> str:
    """Returns a note as text for the agent."""
    if note.fault is PromptFault.NOT_DRAWN:
        return f"note: could not draw {', '.join(map(repr, note.words))} of {note.prompt!r}"
    return (
        f"note: {note.prompt!r} is from the example in your instructions, which is about another unit: its image does not "
        "count as evidence. Write prompts for what the exemplars of this unit show"
    )
