"""A task is a folder of prompts. Placeholders: {api} in system.md."""

from dataclasses import dataclass
from pathlib import Path

from openmaia.errors import UsageError

FILES = ("system", "user", "final", "no_code", "describe", "summarize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    system: str
    user: str
    final: str
    no_code: str
    describe: str
    summarize: str

    def instructions(self, api: str) -> str:
        return self.system.replace("{api}", api)


def load(name: str) -> Task:
    """A task of this package by name, or a folder of one's own; a file left out there is taken from `description`."""
    shipped = Path(__file__).parent
    folder = shipped / name if (shipped / name / "user.md").is_file() else Path(name)
    if not (folder / "user.md").is_file():
        known = ", ".join(sorted(path.parent.name for path in shipped.glob("*/user.md")))
        raise UsageError(f"task.name={name!r} is neither a task of OpenMAIA ({known}) nor a folder with a user.md")
    texts = {file: _read(folder, shipped / "description", f"{file}.md") for file in FILES}
    return Task(name=folder.name, **texts)


def _read(folder: Path, fallback: Path, file: str) -> str:
    path = folder / file if (folder / file).is_file() else fallback / file
    return path.read_text(encoding="utf-8").strip() + "\n"
