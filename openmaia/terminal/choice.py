"""What a forced choice came to, by people or by a model, and what the papers print, never as one."""

from openmaia.evaluate.choice.score import Score
from openmaia.figures.papers.published import choices
from openmaia.terminal.progress import console


def show_choice(found: Score, model: str = "") -> None:
    """model: which one chose, "" for people."""
    one, other = found.methods
    who = f"by a model, {model}" if model else f"by {len(found.who)} {'person' if len(found.who) == 1 else 'people'}"
    lines = [
        f"two-alternative forced choice {who}: labels {one} over labels {other} {found.share.mean:.2f}, 95 % interval "
        f"{found.share.low:.2f} to {found.share.high:.2f}, over {found.units} units",
        f"{found.answered} of {found.asked} questions answered; what stood first was chosen {found.first:.0%} of the time"
        + ("" if found.same is None else f"; {found.same:.0%} of pairs were answered alike in both orders"),
        _printed(model),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _printed(model: str) -> str:
    said = ", ".join(f"{one.preferred} over {one.over} {one.share:g}" for one in choices())
    by = choices()[0].source
    if model:
        return f"not comparable with what people chose in the paper ({said}; {by}): here a model chose"
    return f"the paper's own, of other units and labels: {said} ({by})"
