"""A language model answers `openmaia ask` in words: which units it cites, and what it says of them that it was not told.

    python -m measure.language_model.asking FOLDER [url=http://127.0.0.1:8000/v1 model=NAME] [each=10] [half=measured] [again=1]

Runs, truth and questions are those of measure/asking.py, whose FOLDER it takes: of each kind of units the first `each` questions of
the half that counts, by a hash, for which `ask` finds units. Without a URL the model is that of model.py, with
configs/models/local-cpu.yaml. Writes asking.csv beside this file, with all answers, and a section of RESULTS.md; with
`half=tuning` it prints the answers and writes nothing. `again=1` asks nothing, and reads the answers in asking.csv with today's rules.

Two rules read the answers. A sentence says something *untold* if it has a word of the grammar that neither the lines of its units
nor the question have. It is *wrong about the test* if it calls a unit supported that is not, or the reverse. This rule was corrected after the measurement, whose
answers were then read again: it had taken "(undecided)" in a list of supported units for an error, so that it counted 3 and not 2.
"""

import csv
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any

from measure import asking
from measure.language_model import results
from measure.language_model.model import NAME, served
from measure.measuring import machine
from openmaia.analysis.search import WordNames, read_things, run_lexicon, stem
from openmaia.assembly import backbones
from openmaia.assembly.asking import CitedUnit, RunAnswer, RunQuestions, phrase_answer
from openmaia.config.loading import restore
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Backbone
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict
from openmaia.evaluation.language_model import LanguageModel
from openmaia.offline.scene_units.family import share
from tests.conftest import REPOSITORY

CSV = Path(__file__).with_name("asking.csv")
CONFIG = REPOSITORY / "configs/models/local-cpu.yaml"
ASKED = {"url": "", "model": NAME, "each": "10", "half": "measured", "again": ""}
MAKE = {"scene graphs": asking.scene_graphs, "class outputs": asking.class_outputs}
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_DENIED = re.compile(r"(?:\bnot|n't|\bun|\bwithout)[\s-]*(?:\w+\s+)?support\w*|\bundecided|\babstain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer of the model, beside what it was told and what is true."""

    question: str
    answer: RunAnswer
    cited: tuple[CitedUnit, ...]
    right: int
    """Of those cited, the ones to be named."""
    told_right: int
    found_right: int
    to_name: int
    untold: tuple[str, ...]
    misjudged: tuple[str, ...]
    sentences: int
    attempts: int
    seconds: float


class Heard:
    """Counts the replies of a backbone."""

    def __init__(self, backbone: Backbone):
        self._backbone, self.count = backbone, 0

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.count += len(chats)
        return self._backbone.reply(chats)


def main() -> None:
    folder, *rest = sys.argv[1:]
    given: dict[str, str] = {name: value for name, _, value in (argument.partition("=") for argument in rest)}
    if unknown := given.keys() - ASKED.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(f'{name}=…' for name in ASKED)}")
    chosen = ASKED | given
    found: dict[str, list[Answered]] = {}
    if chosen["again"]:
        stored = list(csv.DictReader(CSV.read_text().splitlines()))
        for name, make in MAKE.items():
            rows = [each for each in stored if each["units"] == name]
            found |= {name: list(read_again(make(Path(folder)), rows))} if rows else {}
        write(found, results.asking_conditions())
        return
    conditions = {"model": chosen["model"], "machine": machine(), "date": date.today().isoformat()}
    with nullcontext(chosen["url"]) if chosen["url"] else served() as url:
        for name, make in MAKE.items():
            told = answered(make(Path(folder)), chosen["half"], int(chosen["each"]), url, chosen["model"])
            found[name] = [show(each) for each in told]
            if chosen["half"] == "measured":
                write(found, conditions)


def write(found: dict[str, list[Answered]], conditions: Mapping[str, str]) -> None:
    write_csv(found)
    results.write_asking({**conditions, "units": {name: figures(each) for name, each in found.items()}})


def read_again(asked: asking.Asked, rows: Sequence[Mapping[str, str]]) -> Iterator[Answered]:
    questions, lexicon = RunQuestions(asked.run), run_lexicon(asked.run.config())
    for each in rows:
        found = questions.ask(f"which units respond to {each['question']}?")
        units = tuple(judged(asked, unit) for unit in found.units)
        said = replace(
            found,
            units=units,
            phrased=each["answer"],
            struck=tuple(filter(None, each["struck"].split("; "))),
            unphrased=each["unphrased"],
        )
        yield read(each["question"], said, asked, lexicon, int(each["attempts"]), float(each["seconds"]))


def show(one: Answered) -> Answered:
    """Prints an answer as soon as it is there."""
    print(json.dumps(row("", one), ensure_ascii=False), flush=True)
    return one


def answered(asked: asking.Asked, half: str, each: int, url: str, model: str) -> Iterator[Answered]:
    questions = RunQuestions(asked.run)
    stored = {key: value for key, value in asked.run.config().items() if key != "backbone"}
    overlays = [str(CONFIG), f"backbone.base_url={url}", f"backbone.model={model}"]
    heard = Heard(backbones.backbone(restore(stored, asked.run.files.root, overlays)))
    lexicon = run_lexicon(asked.run.config())
    texts = sorted(asked.half(half), key=lambda text: share("phrased", text))
    answers = ((text, questions.ask(f"which units respond to {text}?")) for text in texts)
    for text, answer in [(text, answer) for text, answer in answers if answer.units][:each]:
        answer = replace(answer, units=tuple(judged(asked, unit) for unit in answer.units))
        began, before = time.monotonic(), heard.count
        said = phrase_answer(answer, LanguageModel(heard, model), questions.layers)
        seconds = time.monotonic() - began
        yield read(text, said, asked, lexicon, heard.count - before, seconds)


def judged(asked: asking.Asked, unit: CitedUnit) -> CitedUnit:
    """Returns a unit with its verdict of the measurement, because the run in the folder holds no tests."""
    verdict = (
        Verdict.SUPPORTED
        if unit.row.unit in asked.supported
        else Verdict.UNDECIDED
        if unit.labels
        else Verdict.ABSTAINED
    )
    return replace(unit, row=replace(unit.row, verdict=UnitVerdict(verdict=verdict, reason="")))


def read(
    text: str, said: RunAnswer, asked: asking.Asked, lexicon: WordNames, attempts: int, seconds: float
) -> Answered:
    told, truth = said.told, asked.truth[text]
    sentences = _SENTENCE.split(said.phrased) if said.phrased else []
    by_sentence = [(sentence, [unit for unit in told if names(sentence, unit)]) for sentence in sentences]
    cited = tuple(unit for unit in told if any(unit in units for _, units in by_sentence))

    def count(units: Sequence[CitedUnit]) -> int:
        return sum(each.row.unit in truth for each in units)

    return Answered(
        question=text,
        answer=said,
        cited=cited,
        right=count(cited),
        told_right=count(told),
        found_right=count(said.units),
        to_name=len(truth),
        untold=tuple(
            word
            for sentence, units in by_sentence
            for word in untold_words(sentence, units or told, said.asked, lexicon)
        ),
        misjudged=tuple(unit.name for sentence, units in by_sentence for unit in misjudged_units(sentence, units)),
        sentences=len(sentences),
        attempts=attempts,
        seconds=seconds,
    )


def names(sentence: str, unit: CitedUnit) -> bool:
    return re.search(rf"(?<![\w/]){re.escape(unit.name)}(?!\d)", sentence) is not None


def untold_words(sentence: str, units: Sequence[CitedUnit], question: str, lexicon: WordNames) -> list[str]:
    """Returns the words of the grammar in a sentence that neither the lines of its units nor the question have."""
    lines = [question, *(text for unit in units for text in (*unit.labels, unit.row.header.get("description") or ""))]
    # What a label denies is told, too.
    known = frozenset[str]().union(
        *(
            thing
            for line in lines
            for part in re.split(r"\b(?:without|not|but)\b", line)
            for _, thing in read_things(part, lexicon)
        )
    )
    said = read_things(_BRACKETS.sub(" ", sentence), lexicon)
    return [words for words, thing in said if stem(words) in lexicon and not thing & known]


def misjudged_units(sentence: str, units: Sequence[CitedUnit]) -> list[CitedUnit]:
    """Returns the units that a sentence calls supported though they are not, or the reverse; none where it says both."""
    text = _BRACKETS.sub(" ", sentence.casefold())
    is_denied, is_affirmed = _DENIED.search(text) is not None, "support" in _DENIED.sub(" ", text)
    if is_denied == is_affirmed:
        return []
    return [unit for unit in units if (unit.row.verdict.verdict is Verdict.SUPPORTED) != is_affirmed]


def figures(found: Sequence[Answered]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(getattr(each, name) for each in found)

    def length(name: str) -> int:
        return sum(len(getattr(each, name)) for each in found)

    units, told, struck = (
        sum(len(getattr(each.answer, name)) for each in found) for name in ("units", "told", "struck")
    )
    wanted = total("to_name")
    return {
        "questions": len(found),
        "unphrased": sum(not each.answer.phrased for each in found),
        "attempts": total("attempts"),
        "struck": struck,
        "found": units,
        "told": told,
        "cited": length("cited"),
        "precision": {
            "ask": proportion(total("found_right"), units),
            "told": proportion(total("told_right"), told),
            "model": proportion(total("right"), length("cited")),
        },
        "recall": {
            "ask": proportion(total("found_right"), wanted),
            "told": proportion(total("told_right"), wanted),
            "model": proportion(total("right"), wanted),
        },
        "sentences": total("sentences"),
        "untold": length("untold"),
        "misjudged": length("misjudged"),
        "cited_unsupported": sum(
            unit.row.verdict.verdict is not Verdict.SUPPORTED for each in found for unit in each.cited
        ),
        "seconds": [mean(each.seconds for each in found), median(each.seconds for each in found)],
    }


def proportion(part: int, whole: int) -> list[float] | None:
    return [part / whole, *wilson(part / whole, whole)] if whole else None


def row(units: str, one: Answered) -> list[Any]:
    return [
        units, one.question, len(one.answer.units), len(one.answer.told), len(one.cited), one.right, one.to_name, one.sentences,
        "; ".join(one.answer.struck), "; ".join(one.untold), " ".join(one.misjudged), one.attempts, round(one.seconds, 1),
        one.answer.unphrased, one.answer.phrased,
    ]  # fmt: skip


def write_csv(found: dict[str, list[Answered]]) -> None:
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(
            "units question found told cited right to_name sentences struck untold misjudged attempts seconds unphrased "
            "answer".split()
        )
        table.writerows(row(name, one) for name, several in found.items() for one in several)


if __name__ == "__main__":
    main()
