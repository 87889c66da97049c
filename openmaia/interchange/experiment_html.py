"""The published experiment page as a conversation.

The agent's replies stand below <h2>MAIA</h2>, everything else below <h2>Experiment Execution</h2> or before the first
heading; text is in <pre>, unescaped, images are inline. Text may hold any characters but the closing tag, so the page is
not parsed as HTML.
"""

import re

_OPENING = re.compile(r'<h2>|<pre>|<img src="')
_CLOSING = {"<h2>": "</h2>", "<pre>": "</pre>", '<img src="': '"'}


def parse(page: str) -> list[tuple[str, list[str]]]:
    """(role, texts and image addresses) in order. A page that breaks off gives what is whole."""
    found: list[tuple[str, list[str]]] = []
    role, at, heading = "user", 0, True
    while opening := _OPENING.search(page, at):
        end = page.find(_CLOSING[opening[0]], opening.end())
        if end < 0:
            break
        inside = page[opening.end() : end]
        at = end + len(_CLOSING[opening[0]])
        if opening[0] == "<h2>":
            role, heading = ("assistant" if inside.strip() == "MAIA" else "user"), True
        elif heading:
            found.append((role, [inside]))
            heading = False
        else:
            found[-1][1].append(inside)
    return found
