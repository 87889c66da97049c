"""A task is a folder: prompts, and task.yaml with the grammar of its answer, its scope, its stopping rule and how
masks are drawn.

system.md     who the agent is; {api} stands for what it can call
user.md       the question; {layer} and {unit} stand for what is asked about, {class} for the name of an output's class
final.md      said when experiments are used up
no_code.md    said to a message that holds neither an experiment nor an answer
evidence.md   the stopping rule as the agent reads it, where one is required: {experiments}, {controls}, {replicates} are its
              numbers, and a line about what is not required is left out
missing.md    said to an answer that comes too early; {missing} stands for what it lacks
describe.md   what a fresh viewer is asked about one image, summarize.md about several
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.errors import UsageError
from openmaia.images import Rendering
from openmaia.tasks.grammar import Answer
from openmaia.tasks.rule import Rule
from openmaia.units import Scope, Unit

Kind = TypeVar("Kind", bound=StrEnum)

FILES = ("system", "user", "final", "no_code", "evidence", "missing", "describe", "summarize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """scope: what one investigation is about. rule: what an answer has to rest on. rendering: how `.masked` shows where a
    unit responds."""

    name: str
    system: str
    user: str
    final: str
    no_code: str
    evidence: str
    missing: str
    describe: str
    summarize: str
    answer: Answer
    scope: Scope
    rule: Rule
    rendering: Rendering

    def instructions(self, api: str) -> str:
        return self.system.replace("{api}", api)

    def question(self, unit: Unit, rule: Rule, class_name: Callable[[], str] = lambda: "") -> str:
        """class_name: asked where the question names the class."""
        asked = self.user.replace("{layer}", unit.layer).replace("{unit}", str(unit.index))
        if "{class}" in asked:
            asked = asked.replace("{class}", class_name())
        stated = rule.stated(self.evidence)
        return f"{asked}\n{stated}" if stated else asked


@dataclass
class _AnswerFile:
    text: str = "DESCRIPTION"
    labels: str = "LABEL"
    decided_by: str = "DESCRIPTION"
    choices: list[str] = field(default_factory=list[str])


@dataclass
class _EvidenceFile:
    experiments: int = 0
    controls: int = 0
    replicates: int = 0
    confirm: int = 0


@dataclass
class _File:
    """task.yaml."""

    scope: str = "unit"
    rendering: str = "darken"
    answer: _AnswerFile = field(default_factory=_AnswerFile)
    evidence: _EvidenceFile = field(default_factory=_EvidenceFile)


def load(name: str) -> Task:
    """A task of this package by name, or a folder of one's own; a file left out there is taken from `description`.

    Raises UsageError for an unknown name and for a task.yaml that cannot be understood.
    """
    shipped = Path(__file__).parent
    folder = shipped / name if (shipped / name / "user.md").is_file() else Path(name)
    if not (folder / "user.md").is_file():
        known = ", ".join(sorted(path.parent.name for path in shipped.glob("*/user.md")))
        raise UsageError(f"task.name={name!r} is neither a task of OpenMAIA ({known}) nor a folder with a user.md")
    texts = {file: _read(folder, shipped / "description", f"{file}.md") for file in FILES}
    found = _file(folder / "task.yaml")
    answer = Answer(
        text=found.answer.text.upper(),
        labels=found.answer.labels.upper(),
        decided_by=found.answer.decided_by.upper(),
        choices=tuple(choice.upper() for choice in found.answer.choices),
    )
    if answer.decided_by not in (answer.text, answer.labels):
        raise UsageError(
            f"{folder}/task.yaml: answer.decided_by={answer.decided_by!r}; expected {answer.text} or {answer.labels}"
        )
    return Task(
        name=folder.name,
        answer=answer,
        rule=_rule(found.evidence, f"{folder}/task.yaml: evidence"),
        scope=_member(Scope, found.scope, f"{folder}/task.yaml: scope"),
        rendering=_member(Rendering, found.rendering, f"{folder}/task.yaml: rendering"),
        **texts,
    )


def _read(folder: Path, fallback: Path, file: str) -> str:
    path = folder / file if (folder / file).is_file() else fallback / file
    return path.read_text(encoding="utf-8").strip() + "\n"


def _file(path: Path) -> _File:
    schema = OmegaConf.structured(_File)
    if not path.is_file():
        return _File()
    try:
        found: Any = OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.load(path)))
    except (OmegaConfBaseException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path}: {str(error).splitlines()[0]}") from error
    return found


def _rule(given: _EvidenceFile, key: str) -> Rule:
    for name, value in vars(given).items():
        if value < 0:
            raise UsageError(f"{key}.{name}={value}; expected 0 (not required) or more")
    return Rule(**vars(given))


def _member(kind: type[Kind], given: str, key: str) -> Kind:
    try:
        return kind(given)
    except ValueError as error:
        raise UsageError(f"{key}: {given!r}; expected {' or '.join(kind)}") from error
