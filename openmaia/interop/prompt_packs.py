"""Reads prompts of the published MAIA code as tasks, from folders with

api.txt          the instructions, which describe the API: system.md
user_<task>.txt  a question: user.md
final.txt        what ends the experiments: final.md. The published code reads it from the folder `open` for all others.
"""

from pathlib import Path

from openmaia.interop.reading import Refused, read_text

API = "api.txt"

_QUESTION, _FINAL = "user_*.txt", "final.txt"
_MAIN = "neuron_description"
_BYTES = 1_000_000
_SETTINGS = """\
# Prompts of the published MAIA code: the agent itself decides when it has seen enough.
evidence: {experiments: 0, labels: 0, words: 0, drawable: 0, confirm: 0, rounds: 0}
"""


def read(folder: Path) -> dict[str, dict[str, str]]:
    """Returns the files of the tasks in a folder of prompts: their texts by task and name.

    The question `user_neuron_description.txt` makes a task that is named like the folder; any other appends its own name.

    Raises:
        Refused: There is no question, or a file cannot be read.
    """
    questions = sorted(folder.glob(_QUESTION))
    if not questions:
        raise Refused(f"holds {API}, but no question (user_neuron_description.txt)")
    shared = {"system.md": read_text(folder / API, _BYTES), "task.yaml": _SETTINGS}
    final = next((each for each in (folder / _FINAL, folder.parent / "open" / _FINAL) if each.is_file()), None)
    if final:
        shared["final.md"] = read_text(final, _BYTES)
    tasks: dict[str, dict[str, str]] = {}
    for path in questions:
        task = path.stem.removeprefix("user_")
        name = folder.name if task == _MAIN else f"{folder.name}-{task}"
        tasks[name] = {**shared, "user.md": read_text(path, _BYTES)}
    return tasks
