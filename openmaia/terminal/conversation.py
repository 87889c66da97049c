"""A conversation as it happens."""

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax

from openmaia.store.records import Turn
from openmaia.terminal.progress import console


def show_turn(turn: Turn) -> None:
    """One turn of a conversation: what the agent said and what its experiment showed."""
    said = turn.reply.replace(turn.code, "").strip() if turn.code else turn.reply.strip()
    parts: list[Any] = [escape(said)]
    if turn.code:
        parts.append(Syntax(turn.code, "python", word_wrap=True))
    console.print(Panel(Group(*parts), title=f"turn {turn.index + 1}", title_align="left", border_style="cyan"))
    texts = [part if isinstance(part, str) else f"<picture {part.digest[:8]}>\n" for part in turn.observation]
    seen = "".join(texts)
    if seen:
        cut = seen if len(seen) < 3000 else f"{seen[:3000]}\n… {len(seen) - 3000} characters more in the record"
        console.print(Panel(escape(cut), title=f"observed ({turn.status})", title_align="left", border_style="dim"))
