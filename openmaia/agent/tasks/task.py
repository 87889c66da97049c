"""Reads tasks. A task is a folder with prompts and a task.yaml: the format of the answer, the scope, the stopping rule,
and how masks are rendered.

system.md     who the agent is; {api} stands for what it can call, {example} for the example
example.md    an example of a whole investigation, left out if a tool is not available
user.md       the question; {layer}, {unit} and {class} stand for the layer and the index of the unit, and for its class
final.md      after the last experiment
no_code.md    after a message with neither an experiment nor an answer
set_aside.md  after a message with an experiment and an answer
repeated.md   after a message that repeated itself and was cut
evidence.md   the stopping rule, if there is one; {experiments}, {controls}, {replicates} and {labels} stand for its
              numbers; a line about something that is not required is left out
missing.md    after an answer that is sent back; {missing} stands for what it lacks
reword.md     the same, after one that lacks nothing but labels that can be tested
refuted.md    after an answer that failed the test of its labels; {faults} stands for the result of each label
describe.md   what the viewer is asked about one image; summarize.md about several
look.md       what the viewer is asked, for a backbone that takes no images, about an image and its masked rendering
contrasts.md  the instructions for the model that writes contrasts
effect.md     what follows the question if the agent may ask for effects (`task.effects`)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config.loading import UNREADABLE, read_yaml
from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.core.images import Rendering
from openmaia.core.messages import AnswerFormat
from openmaia.core.units import Scope, Unit

EnumT = TypeVar("EnumT", bound=StrEnum)

_PROMPTS = (
    "system",
    "example",
    "user",
    "final",
    "no_code",
    "set_aside",
    "repeated",
    "evidence",
    "missing",
    "reword",
    "refuted",
    "describe",
    "look",
    "summarize",
    "contrasts",
    "effect",
)


_NO_EVIDENCE = dict.fromkeys(("experiments", "controls", "replicates", "labels", "words", "drawable", "rounds"), 0)

FUNCTION_WORDS = frozenset(
    ["a", "an", "and", "any", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """The evidence rule of a task; 0 demands nothing.

    `confirm` and `rounds` demand no evidence: they configure the test after an answer. Once the agent has
    been told to run no more experiments, only `experiments`, `words` and `drawable` count.
    """

    experiments: int = 0
    """Different experiments that measured an image and ended without an exception. Images of prompts copied from the
    example do not count."""
    controls: int = 0
    """Different negative controls measured for each hypothesis that the answer keeps: images that should not excite the
    unit if it is true."""
    replicates: int = 0
    """Different images measured for each hypothesis that the answer keeps."""
    confirm: int = 0
    """Contrasts for all labels together, at least one for each label."""
    rounds: int = 0
    """Answers that are sent back at most because their labels fail the test with contrasts."""
    labels: int = 0
    """1: an answer is sent back if a label has not been measured: if none of its words, function words apart, occurs in
    the prompt or hypothesis of a measured image. If nothing else is missing, only once."""
    words: int = 0
    """Words of a label. Answers with longer labels are sent back, twice at most."""
    drawable: int = 0
    """1: an answer is sent back if a label cannot be drawn, twice at most."""

    @property
    def demands(self) -> dict[str, int]:
        """The numbers above 0 by field name, without `confirm` and `rounds`."""
        names = ("experiments", "controls", "replicates", "labels", "words", "drawable")
        numbers: dict[str, int] = {name: getattr(self, name) for name in names}
        return {what: number for what, number in numbers.items() if number}

    def problems(self) -> Iterator[str]:
        """Yields what contradicts itself."""
        if self.rounds and not self.confirm:
            yield f"evidence.rounds={self.rounds} with evidence.confirm=0: no test could send an answer back"

    def overridden(self, values: Mapping[str, int | None]) -> "StoppingRule":
        """Returns a copy with other values for some fields; None leaves a field unchanged."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def stated(self, text: str, *, states: bool = False) -> str:
        """Returns the prompt that tells the agent this rule, from the template `evidence.md`; empty if it demands
        nothing. With `states` it says how to name hypotheses, whatever it demands.
        """
        if not self.demands:
            return text.partition("\n\n")[2] if states else ""
        # The part after the first empty line says how a call names the hypothesis that an image tests.
        demands, _, naming = text.partition("\n\n")
        lines = (demands + ("\n" + naming if self.controls or self.replicates or states else "")).splitlines()
        lines = [line for line in lines if set(re.findall(r"\{(\w+)\}", line)) <= self.demands.keys()]
        return re.sub(r"\{(\w+)\}", lambda name: str(self.demands[name[1]]), "\n".join(lines)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The fields from `system` to `effect` are the texts of the prompt files that the module docstring lists."""

    name: str
    system: str
    example: str
    user: str
    final: str
    no_code: str
    set_aside: str
    repeated: str
    evidence: str
    missing: str
    reword: str
    refuted: str
    describe: str
    look: str
    summarize: str
    contrasts: str
    effect: str
    answer: AnswerFormat
    scope: Scope
    rule: StoppingRule
    rendering: Rendering
    """How `image.masked` shows the region where the unit responds."""

    def instructions(self, api: str, *, is_whole: bool = True) -> str:
        """Returns the system message. `api` describes what the agent's code can call."""
        # The example calls most tools, so it is left out if one of them is missing.
        return self.system.replace("{api}", api.rstrip()).replace(
            "{example}", f"{self.example}\n" if is_whole and self.example.strip() else ""
        )

    def has_example(self, prompt: str, *, is_whole: bool = True) -> bool:
        """Returns whether a prompt was copied from the example in the instructions.

        It has at least three words and stands in the example, or it has at least three words other than function words,
        and one prompt of the example has all of them in the same order. False if the instructions have no example.
        """
        # The example is about another unit. Small models tend to copy it and to take their answer from it.
        words = _words(prompt)
        if len(words) < 3 or not is_whole or "{example}" not in self.system:
            return False
        if f" {' '.join(words)} " in f" {' '.join(_words(self.example))} ":
            return True
        content = [word for word in words if word not in FUNCTION_WORDS]
        prompts = (iter(_words(quoted)) for quoted in re.findall(r'"(.*?)"', self.example))
        return len(content) >= 3 and any(all(word in shown for word in content) for shown in prompts)

    def under(self, evidence: Mapping[str, int | None]) -> "Task":
        """Returns a copy whose stopping rule has other values (see `StoppingRule.overridden`). Raises UsageError if it
        contradicts itself, or has rounds where no answer is tested.
        """
        rule = self.rule.overridden(evidence)
        for problem in rule.problems():
            raise UsageError(f"task.{problem}")
        if rule.rounds and (self.answer.choices or self.scope is not Scope.UNIT):
            raise UsageError(
                f"task.evidence.rounds={rule.rounds}: the task {self.name!r} has no labels of a unit that images could test; "
                "leave it at 0"
            )
        return replace(self, rule=rule)

    def with_effects(self) -> "Task":
        """Returns a copy whose answers may name the classes that the unit raises; the task itself if its answers are choices,
        or about several units."""
        if self.answer.choices or self.scope is not Scope.UNIT:
            return self
        shown = re.findall(r"<([^<>\n]+)>", self.effect)
        answer = replace(self.answer, effect="EFFECT", placeholders=(*self.answer.placeholders, *shown))
        return replace(self, answer=answer, user=f"{self.user}\n{self.effect}")

    def question(self, unit: Unit, class_name: Callable[[], str] = lambda: "", *, states: bool = False) -> str:
        """Returns the first user message: the question and the stopping rule. `class_name` is called only if the prompt
        contains {class}. See `StoppingRule.stated` for `states`.
        """
        text = self.user.replace("{layer}", unit.layer).replace("{unit}", str(unit.index))
        if "{class}" in text:
            text = text.replace("{class}", class_name())
        rule = self.rule.stated(self.evidence, states=states)
        return f"{text}\n{rule}" if rule else text


@dataclass
class _TaskFile:
    """The schema of task.yaml."""

    scope: str = "unit"
    rendering: str = "darken"
    answer: AnswerFormat = field(default_factory=AnswerFormat)
    evidence: StoppingRule = field(default_factory=StoppingRule)


def evidence_values(config: Config) -> dict[str, int | None]:
    """Returns the values that replace fields of the task's stopping rule; None keeps the value of the task."""
    return vars(config.task.evidence) | ({} if of_config(config.backbone).experiments else _NO_EVIDENCE)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def load(name: str) -> Task:
    """Reads a task of this package, or of a folder. Prompt files that it lacks are those of the task `description`.

    Raises UsageError if there is no such task, or its task.yaml is invalid.
    """
    shipped = Path(__file__).parent
    folder = shipped / name if (shipped / name / "user.md").is_file() else Path(name)
    if not (folder / "user.md").is_file():
        known = ", ".join(sorted(path.parent.name for path in shipped.glob("*/user.md")))
        raise UsageError(f"task.name={name!r} is neither a task of OpenMAIA ({known}) nor a folder with a user.md")
    file = folder / "task.yaml"
    settings = _settings(file)
    question = _read(folder, shipped / "description", "user.md")
    return Task(
        name=folder.name,
        answer=_answer_format(settings.answer, question, file),
        rule=_rule(settings.evidence, file),
        scope=_member(Scope, settings.scope, f"{file}: scope"),
        rendering=_member(Rendering, settings.rendering, f"{file}: rendering"),
        **{prompt: _read(folder, shipped / "description", f"{prompt}.md") for prompt in _PROMPTS},
    )


def _read(folder: Path, fallback: Path, file: str) -> str:
    path = folder / file if (folder / file).is_file() else fallback / file
    return path.read_text(encoding="utf-8").strip() + "\n"


def _settings(path: Path) -> _TaskFile:
    if not path.is_file():
        return _TaskFile()
    try:
        given, _ = read_yaml(path)
        settings: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(_TaskFile), given))
    except (*UNREADABLE, OmegaConfBaseException) as error:
        raise UsageError(f"{path}: {str(error).partition(chr(10))[0]}") from error
    for choice in OmegaConf.select(given, "answer.choices") or ():
        if isinstance(choice, (bool, float)):
            raise UsageError(
                f"{path}: answer.choices: YAML reads a choice as {choice}, not as a text; put it in quotes"
            )
    return settings


def _answer_format(given: AnswerFormat, question: str, path: Path) -> AnswerFormat:
    """Returns the format with headings and choices in capitals, and with the placeholders (in angle brackets) of the
    question.
    """
    answer = AnswerFormat(
        text=given.text.upper(),
        labels=given.labels.upper(),
        decided_by=given.decided_by.upper(),
        choices=tuple(choice.upper() for choice in given.choices),
        placeholders=tuple(dict.fromkeys((*given.placeholders, *re.findall(r"<([^<>\n]+)>", question)))),
    )
    if answer.decided_by not in (answer.text, answer.labels):
        raise UsageError(f"{path}: answer.decided_by={answer.decided_by!r}; expected {answer.text} or {answer.labels}")
    return answer


def _rule(rule: StoppingRule, path: Path) -> StoppingRule:
    for name, value in asdict(rule).items():
        if value < 0:
            raise UsageError(f"{path}: evidence.{name}={value}; expected 0 (not required) or more")
    for problem in rule.problems():
        raise UsageError(f"{path}: {problem}")
    return rule


def _member(enum: type[EnumT], value: str, key: str) -> EnumT:
    try:
        return enum(value)
    except ValueError as error:
        raise UsageError(f"{key}: {value!r}; expected {' or '.join(enum)}") from error
