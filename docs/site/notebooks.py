"""Executes the notebooks, and renders them as pages.

    python docs/site/notebooks.py [NAME…]

executes those of docs/notebooks (or the named ones) and writes them, with their output, into build/notebooks. The pages show
the output if it is there.
"""

import base64
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / "docs/notebooks"
EXECUTED = REPOSITORY / "build/notebooks"


def execute(path: Path, to: Path, timeout: int = 1200) -> None:
    """Executes a notebook in a process of its own and writes it with its output.

    Args:
        path: The notebook.
        to: The file to write. The notebook runs in its folder.
        timeout: The longest duration of a cell in seconds.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised an exception.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    to.parent.mkdir(parents=True, exist_ok=True)
    NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": str(to.parent)}}).execute()
    nbformat.write(notebook, to)


def render(path: Path) -> dict[str, str | bytes]:
    """Returns the page of a notebook and the pictures on it, by their path below docs."""
    executed = EXECUTED / path.name
    notebook = json.loads((executed if executed.is_file() else path).read_text())
    pictures: dict[str, str | bytes] = {}
    blocks = [block for cell in notebook["cells"] for block in _cell(cell, path.stem, pictures)]
    note = f"*This page is the notebook `docs/notebooks/{path.name}`.*"
    title, _, rest = "\n\n".join(blocks).partition("\n")
    return {f"notebooks/{path.stem}.md": f"{title}\n\n{note}\n{rest}\n", **pictures}


def _cell(cell: dict[str, Any], stem: str, pictures: dict[str, str | bytes]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for is_stream, outputs in itertools.groupby(cell.get("outputs", ()), lambda each: each["output_type"] == "stream"):
        if is_stream:  # lines that were printed one after the other
            yield _text("".join(line for output in outputs for line in output["text"]))
        else:
            yield from (_output(output, stem, pictures) for output in outputs)


def _output(output: dict[str, Any], stem: str, pictures: dict[str, str | bytes]) -> str:
    """Returns the Markdown of an output. A picture becomes a file of its own, which is added to `pictures`."""
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}-{len(pictures)}.png"
        pictures[f"notebooks/{name}"] = base64.b64decode("".join(data["image/png"]))
        return f"![Output of the cell above]({name})"
    if "text/html" in data:
        # One line per block, because Markdown would end the HTML at an empty line.
        html = " ".join("".join(data["text/html"]).split("\n"))
        return f'<div class="notebook-output">{html}</div>'
    return _text("".join(data.get("text/plain", "")))


def _text(text: str) -> str:
    return f"```{{ .text .notebook-output }}\n{text.rstrip()}\n```" if text.strip() else ""


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    for source in sorted(SOURCES.glob("*.ipynb")):
        if len(sys.argv) == 1 or source.stem in sys.argv[1:]:
            print(f"executing {source.relative_to(REPOSITORY)}")
            execute(source, EXECUTED / source.name)
