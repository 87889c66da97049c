"""Measures which units `openmaia ask` names, on units of known truth, and writes asking.csv beside this file.

    python -m measure.asking FOLDER

FOLDER is for the runs, and keeps the bank. The runs hold what the searcher said of units over scene graphs (world/units.csv) and of
class outputs (world/classes.csv); there is no new investigation. Questions are "which units respond to X?", with each word of the
grammar as X, by one of its synonyms, and with each phrase of two words that is the truth of a unit. A unit is to be named if a slot
of its truth is X, wider or narrower. Thresholds were set before; one half of the questions (`tuning`) compares
others, and the rows that count are those of the other half. Meaning is that of all-MiniLM-L6-v2, with the threshold that was
set for similar descriptions before. `other phrasing` asks the same in words that were not known when the program was written.
"""

import csv
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from measure.measuring import machine
from measure.world.units import EACH, SEED, WITHOUT
from openmaia.analysis.search import TextSearch, run_lexicon
from openmaia.analysis.shown import find_shown
from openmaia.assembly import exemplars, targets
from openmaia.assembly.asking import RunQuestions
from openmaia.assembly.datasets import image_dataset
from openmaia.assembly.generators import generator
from openmaia.config.loading import load
from openmaia.core.components import target_class
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.statistics import wilson
from openmaia.exemplars.bank import MeasuredBank
from openmaia.models.text_embedding import load_text_embedding
from openmaia.offline.scene_units.family import share
from openmaia.offline.scene_units.matching import relation
from openmaia.offline.scenes.words import names
from openmaia.offline.searcher.rules import SceneRules
from openmaia.runs.records import Record, Stop
from openmaia.runs.run import Run
from tests.helpers import minilm

WORLD = Path(__file__).parent / "world"
CSV = Path(__file__).with_name("asking.csv")
BANK = 1500
COVERED, SHOWN = (0.5, 1.0), (0.2, 0.4, 0.6, 0.8)
"""Thresholds that were compared on the questions for tuning."""

PHRASINGS = (
    "do you have anything that is sensitive to {}?",
    "help me locate whatever encodes {}",
    "{}, please",
    "tell me who gets excited by {}",
    "a preference for {}, in any of them?",
    "which parts of this model have learned {}?",
    "what picks up {} most?",
    "could one of them be a {} detector?",
)
"""Written after the rule that words which nothing has are not asked for, and before it was measured. Eight others, on which recall was
0.05 and 0.06 without the rule, led to it."""

Named = Mapping[str, set[Unit]]
"""The units that are named, by question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run, and the questions about it with the units that are to be named."""

    run: Run
    bank: MeasuredBank | None
    units: tuple[Unit, ...]
    supported: frozenset[Unit]
    truth: Mapping[str, set[Unit]]

    def half(self, name: str) -> list[str]:
        return [text for text in self.truth if (share("asking", text) < 0.5) == (name == "tuning")]


def main() -> None:
    folder = Path(sys.argv[1])
    lines: list[list[Any]] = []
    for name, asked in (("scene graphs", scene_graphs(folder)), ("class outputs", class_outputs(folder))):
        for half in ("tuning", "measured"):
            questions = asked.half(half)
            for method, named in methods(asked, questions, is_tuning=half == "tuning"):
                lines.append([name, half, method, *figures(asked, questions, named)])
                print(lines[-1], flush=True)
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(
            "units half method questions to_name named right precision low high recall low high silent supported_precision "
            "machine date".split()
        )
        table.writerows([*line, machine(), date.today().isoformat()] for line in lines)


def scene_graphs(folder: Path) -> Asked:
    config = [
        "name=asking-units", "units=all", "target.kind=scene_units", "target.name=scene_units", "target.half=held_out",
        f"target.seed={SEED}", f"target.count={EACH}", f"target.without={WITHOUT}", f"generator.without={WITHOUT}",
        f"bank.images={BANK}", "pictures.count=200",
    ]  # fmt: skip
    rows = list(csv.DictReader((WORLD / "units.csv").read_text().splitlines()))
    return _asked(folder, config, rows, {})


def class_outputs(folder: Path) -> Asked:
    rows = [
        row | {"layer": "output"}
        for row in csv.DictReader((WORLD / "classes.csv").read_text().splitlines())
        if row["network"] == "trained"
    ]
    given = {Unit(target="scenes_resnet", layer="output", index=int(row["unit"])): (row["class"],) for row in rows}
    return _asked(folder, ["name=asking-classes", "units=output=all"], rows, given)


def _asked(
    folder: Path, overrides: Sequence[str], rows: Sequence[Mapping[str, str]], truths: Mapping[Unit, tuple[str, ...]]
) -> Asked:
    config = load(["configs/demo.yaml", *overrides, f"paths.runs={folder}", f"paths.exemplars={folder}/exemplars"])
    target, bank = config.target.name, None
    if config.bank.images:
        measured = targets.target(config)
        truths = target_class(config.target).truths(config.target, measured.info())
        bank = exemplars.bank(config, generator(config), measured, image_dataset(config), print)
    units = [Unit(target=target, layer=row["layer"], index=int(row["unit"])) for row in rows]
    run = Run.create(config)
    run.set_plan(units, 1)
    for unit, row in zip(units, rows, strict=True):
        labels = tuple(filter(None, row["labels"].split("; ")))
        run.publish(
            Record(
                unit=unit,
                replicate=0,
                stop=Stop.ANSWER if labels else Stop.ABSTAIN,
                cause="",
                labels=labels,
                description=f"The unit responds to {', '.join(labels)}." if labels else "",
                backbone="",
                task="",
                sandbox="none",
                prompts=(),
                turns=(),
                config=dataclasses.asdict(config),
                started=0.0,
            )
        )
    phrases = [slot for unit in units for slot in truths.get(unit, ()) if len(slot.split()) == 2]
    texts = dict.fromkeys([*(synonym(each) for each in names()), *phrases])
    truth = {
        text: {unit for unit in units if any(relation(text, slot) != "other" for slot in truths.get(unit, ()))}
        for text in texts
    }
    return Asked(
        run=run,
        bank=bank,
        units=tuple(units),
        supported=frozenset(unit for unit, row in zip(units, rows, strict=True) if row["verdict"] == "supported"),
        truth=truth,
    )


def synonym(name: str) -> str:
    """One of the words that mean the same, by a hash."""
    words = SceneRules.lexicon()
    same = [phrase for phrase, means in words.items() if means == words.get(name)]
    return min(same or [name], key=lambda each: share("synonym", name, each))


def rephrase(text: str) -> str:
    """Asks for a thing in one of PHRASINGS, chosen by a hash."""
    return PHRASINGS[int(share("phrasing", text) * len(PHRASINGS))].format(text)


def methods(asked: Asked, questions: Sequence[str], *, is_tuning: bool) -> Iterator[tuple[str, Named]]:
    embed = load_text_embedding(minilm.folder())
    by_words, by_meaning = RunQuestions(asked.run), RunQuestions(asked.run, embed)
    for name, ask, phrased in (
        ("ask", by_words, "which units respond to {}?".format),
        ("ask, other phrasing", by_words, rephrase),
        ("ask, by meaning", by_meaning, "which units respond to {}?".format),
        ("ask, by meaning, other phrasing", by_meaning, rephrase),
    ):
        found = {text: ask.ask(phrased(text)).units for text in questions}
        yield name, {text: {each.row.unit for each in units} for text, units in found.items()}
    said = {Unit(**_place(row)): [*row["labels"], row["description"]] for row in asked.run.headers()}
    units, texts = list(said), list(said.values())

    def by(search: Callable[[str], list[Any]]) -> Named:
        return {text: {unit for unit, found in zip(units, search(text), strict=True) if found} for text in questions}

    lexicon = run_lexicon(asked.run.config())
    yield "labels by meaning", by(lambda text: TextSearch(text, lexicon, embed).find(texts))
    yield "labels by words and synonyms", by(lambda text: TextSearch(text, lexicon).find(texts))
    yield "labels by words", by(lambda text: TextSearch(text).find(texts))
    yield "substring", by(lambda text: [any(text in each.lower() for each in several) for several in texts])
    if asked.bank:
        prompts, tops = [each.prompt for each in asked.bank.kept.values()], _tops(asked.bank, units)
        yield "bank", by(lambda text: find_shown(TextSearch(text, lexicon), prompts, tops))
        for least in SHOWN if is_tuning else ():
            yield (
                f"bank, {least}",
                by(lambda text, least=least: find_shown(TextSearch(text, lexicon), prompts, tops, least)),
            )
    for covered in COVERED if is_tuning else ():
        yield (
            f"labels, {covered}",
            by(lambda text, covered=covered: TextSearch(text, lexicon, None, covered).find(texts)),
        )
    yield "all units", {text: set(asked.units) for text in questions}


def figures(asked: Asked, questions: Sequence[str], named: Named) -> list[Any]:
    """All questions together. `silent`: the share of questions without a unit to name for which none is named."""
    truth = {text: asked.truth[text] for text in questions}
    right = sum(len(named[text] & truth[text]) for text in questions)
    said, wanted = sum(len(named[text]) for text in questions), sum(map(len, truth.values()))
    sure = [
        (len(named[text] & asked.supported & truth[text]), len(named[text] & asked.supported)) for text in questions
    ]
    empty = [not named[text] for text in questions if not truth[text]]
    sure_said = sum(count for _, count in sure)
    return [
        len(questions), wanted, said, right, *_share(right, said), *_share(right, wanted),
        f"{sum(empty) / len(empty):.3f}" if empty else "",
        f"{sum(hits for hits, _ in sure) / sure_said:.3f}" if sure_said else "",
    ]  # fmt: skip


def _share(part: int, whole: int) -> list[str]:
    if not whole:
        return ["", "", ""]
    return [f"{value:.3f}" for value in (part / whole, *wilson(part / whole, whole))]


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("target", "layer", "index")}


def _tops(bank: MeasuredBank, units: Sequence[Unit]) -> list[list[str]]:
    return [[each.prompt for each in bank.read(unit) if each.exemplar.kind == "top"] for unit in units]


if __name__ == "__main__":
    main()
