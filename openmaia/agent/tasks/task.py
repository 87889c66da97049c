"""Reads tasks. A task is a folder with prompts and a task.yaml: the format of the answer, the scope, the stopping rule,
and how masks are rendered.

system.md     who the agent is; {api} stands for what it can call, {example} for the example
example.md    an example of a whole investigation, left out if a tool is not available
user.md       the question; {layer} and {unit} stand for the layer and the index of the unit, {class} for the name of
              the class that an output unit represents
final.md      what the agent is told when its experiments are used up
no_code.md    what it is told after a message with neither an experiment nor an answer
set_aside.md  what it is told after a message with an experiment and an answer: only the experiment was run
repeated.md   what it is told after a message that repeated itself and was cut
evidence.md   the stopping rule, if there is one; {experiments}, {controls}, {replicates} and {labels} stand for its
              numbers; a line about something that is not required is left out
missing.md    what it is told after an answer that comes too early; {missing} stands for what the answer lacks
reword.md     what it is told after an answer that lacks nothing but labels that can be tested; with {missing}, too
describe.md   what the viewer, the model that describes images, is asked about one image; summarize.md about several
look.md       what the viewer is asked, for a backbone that takes no images, about an image and its masked rendering
contrasts.md  the instructions for the model that writes near misses of the labels (see `openmaia.agent.contrasts`)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config.loading import UNREADABLE, read_yaml
from openmaia.core.errors import UsageError
from openmaia.core.images import Rendering
from openmaia.core.messages import AnswerFormat
from openmaia.core.units import Scope, Unit

EnumT = TypeVar("EnumT", bound=StrEnum)

PROMPTS = (
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
    "describe",
    "look",
    "summarize",
    "contrasts",
)


FUNCTION_WORDS = frozenset(
    ["a", "an", "and", "any", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """The smallest amounts of evidence that an agent must have collected before its answer is accepted.

    An answer with less evidence is sent back to the agent, which can then run more experiments. The value 0 means that
    a field demands nothing. `confirm` demands no evidence: it configures a test that follows an accepted answer.

    After the agent has been told to run no more experiments, its answer only has to meet the demands `experiments`, `words`
    and `drawable`. The other demands are waived.
    """

    experiments: int = 0
    """Number of different experiments that measured the unit's activation on at least one image and ended without an
    exception. Images of prompts that were copied from the example in the instructions do not count."""
    controls: int = 0
    """Number of different negative controls that were measured for each hypothesis that the answer keeps. A negative
    control is an image that should not excite the unit if the hypothesis is true."""
    replicates: int = 0
    """Number of different images that were measured for each hypothesis that the answer keeps."""
    confirm: int = 0
    """Number of new images on which the labels of an accepted answer are tested, for all labels together, but at least
    one for each label. For each of them, an image of a near miss is generated too: the same scene with one thing
    changed, so that the label no longer holds."""
    labels: int = 0
    """1: an answer is sent back if any of its labels has not been measured. A label counts as measured if one of its
    words, other than function words, occurs in the prompt or the hypothesis of a measured image. If nothing else is
    missing, this happens only once."""
    words: int = 0
    """Largest number of words of a label. Answers with longer labels are sent back, but not more often than twice."""
    drawable: int = 0
    """1: an answer is sent back if the generator cannot draw one of its labels, but not more often than twice."""

    @property
    def demands(self) -> dict[str, int]:
        """The amounts of evidence that this rule demands of the agent, by field name.

        Fields with the value 0 are left out. `confirm` is always left out, because it demands no evidence.
        """
        names = ("experiments", "controls", "replicates", "labels", "words", "drawable")
        numbers: dict[str, int] = {name: getattr(self, name) for name in names}
        return {what: number for what, number in numbers.items() if number}

    def overridden(self, values: Mapping[str, int | None]) -> "StoppingRule":
        """Returns a copy of the rule in which some fields have other values.

        Args:
            values: The new values, by field name. None leaves the field unchanged.
        """
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def stated(self, text: str) -> str:
        """Returns the prompt that tells the agent this rule. It is empty if the rule demands nothing of the agent.

        Args:
            text: The template `evidence.md`. The numbers of this rule replace placeholders such as {controls}. Lines
                about evidence that the rule does not demand are left out. The part after the first empty line explains
                how a tool call names the hypothesis that an image tests. It is kept only if the rule demands controls
                or replicates.
        """
        if not self.demands:
            return ""
        demands, _, naming = text.partition("\n\n")
        lines = (demands + ("\n" + naming if self.controls or self.replicates else "")).splitlines()
        lines = [line for line in lines if set(re.findall(r"\{(\w+)\}", line)) <= self.demands.keys()]
        return re.sub(r"\{(\w+)\}", lambda name: str(self.demands[name[1]]), "\n".join(lines)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question about a unit and the rules for its answer.

    The fields from `system` to `contrasts` are the texts of the prompt files that the module docstring lists.
    """

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
    describe: str
    look: str
    summarize: str
    contrasts: str
    answer: AnswerFormat
    """The format of the agent's answers."""
    scope: Scope
    """What one investigation is about: a unit, a layer or the network."""
    rule: StoppingRule
    rendering: Rendering
    """How the attribute `masked` of an image in the agent's code shows the region where the unit responds."""

    def instructions(self, api: str, *, is_whole: bool = True) -> str:
        """Returns the system message to the agent: its instructions.

        Args:
            api: A description of what the agent's code can call.
            is_whole: Whether the agent can call every tool. If not, the instructions contain no example of an
                investigation, because the example calls most of the tools.
        """
        return self.system.replace("{api}", api.rstrip()).replace(
            "{example}", f"{self.example}\n" if is_whole and self.example.strip() else ""
        )

    def has_example(self, prompt: str, *, is_whole: bool = True) -> bool:
        """Returns whether the agent copied a prompt from the example in its instructions.

        The example is an investigation of another unit. Small models tend to copy it and to take their answer from it.
        A prompt counts as copied in two cases:

        - It has at least three words, and the example contains it.
        - It has at least three words other than function words (such as "the"), and one prompt of the example contains
          all of them in the same order.

        The result is False if the instructions do not contain the example.

        Args:
            prompt: A prompt that the agent wrote.
            is_whole: Whether the agent can call every tool. If not, `instructions` leaves out the example.
        """
        words = _words(prompt)
        if len(words) < 3 or not is_whole or "{example}" not in self.system:
            return False
        if f" {' '.join(words)} " in f" {' '.join(_words(self.example))} ":
            return True
        content = [word for word in words if word not in FUNCTION_WORDS]
        prompts = (iter(_words(quoted)) for quoted in re.findall(r'"(.*?)"', self.example))
        return len(content) >= 3 and any(all(word in shown for word in content) for shown in prompts)

    def question(self, unit: Unit, class_name: Callable[[], str] = lambda: "") -> str:
        """Returns the first user message to the agent: the question about a unit, and the stopping rule.

        Args:
            unit: The unit.
            class_name: Returns the name of the class that an output unit represents. It is called only if the prompt
                contains {class}.
        """
        text = self.user.replace("{layer}", unit.layer).replace("{unit}", str(unit.index))
        if "{class}" in text:
            text = text.replace("{class}", class_name())
        rule = self.rule.stated(self.evidence)
        return f"{text}\n{rule}" if rule else text


@dataclass
class _TaskFile:
    """The schema of task.yaml."""

    scope: str = "unit"
    rendering: str = "darken"
    answer: AnswerFormat = field(default_factory=AnswerFormat)
    evidence: StoppingRule = field(default_factory=StoppingRule)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def load(name: str) -> Task:
    """Reads a task: a folder with prompt files and a task.yaml.

    If the folder lacks a prompt file, the file of the task named `description` is used.

    Args:
        name: The name of a task of this package, or the path of a folder.

    Raises:
        UsageError: There is no such task, or its task.yaml is invalid.
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
        **{prompt: _read(folder, shipped / "description", f"{prompt}.md") for prompt in PROMPTS},
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
    """Returns the format of answers, with headings and choices in capitals, and with the placeholders of the question.

    Args:
        given: The format in task.yaml.
        question: The prompt `user.md`, which shows placeholders in angle brackets.
        path: The path of task.yaml, for the error message.

    Raises:
        UsageError: `decided_by` is not one of the headings.
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
    return rule


def _member(enum: type[EnumT], value: str, key: str) -> EnumT:
    try:
        return enum(value)
    except ValueError as error:
        raise UsageError(f"{key}: {value!r}; expected {' or '.join(enum)}") from error
