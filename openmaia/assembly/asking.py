"""Answers questions about a run with units and their evidence."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from openmaia.agent.metering import metered
from openmaia.analysis.reasons import PredictionReasons, find_reasons
from openmaia.analysis.responding import PictureResponse, rank_units
from openmaia.analysis.search import DENIALS, QUESTION_WORDS, TextMatch, TextSearch, run_lexicon
from openmaia.analysis.shown import BankEvidence, find_shown
from openmaia.assembly import backbones, datasets, targets
from openmaia.assembly.investigations import command_ledger
from openmaia.config.loading import restore
from openmaia.core.components import of_config
from openmaia.core.errors import OpenMaiaError, ServiceError, StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.paths import user_path
from openmaia.core.services import UnitExemplars
from openmaia.core.text import first_line
from openmaia.core.units import Unit, unknown_layer
from openmaia.evaluation.language_model import (
    LanguageModel,
    MalformedAnswer,
    Question,
    UnansweredQuestion,
    fill_template,
)
from openmaia.exemplars.bank import MeasuredBank, find_bank, measured_config
from openmaia.exemplars.pictures import read_picture
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.browser.stores import exemplars_root, find_exemplars
from openmaia.reporting.query import read_query
from openmaia.reporting.tables import UnitRow, make_rows
from openmaia.runs.run import Run
from openmaia.runs.snapshot import Snapshot

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.models.text_embedding import TextEmbedding

LEAST_PERCENT = 99.0
"""The percentage of dataset images that excite a unit less than a picture to which it responds."""
OWN_BACKBONE = "run"
"""Stands for the run's own backbone as the model that phrases an answer."""
_TOLD = 30
"""Units that a language model is told of, the best ones."""
_TOLD_TEXT = 200
_UNKNOWN = 8
"""Words that are named, of those that nothing has."""
_LISTED = re.compile(r"\[[^\[\]]*\]")
"""What stands in brackets, which may be several units: "[layer4/1, layer4/3]"."""
_CUES = re.compile(r"(?:of|in|from|layers?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CitedUnit:
    """A unit that answers a question, with the evidence."""

    row: UnitRow
    match: TextMatch | None = None
    """The label, description or name of its class that answers; None if none does."""
    bank: BankEvidence | None = None
    """None if its images of the bank do not show it, or the run has no bank."""
    prompts: tuple[str, ...] = ()
    """Those of its most exciting images of the bank that show it."""
    responses: tuple[PictureResponse, ...] = ()
    """Its responses to the pictures of the question; empty if it does not respond to all, or there are none."""
    effect: float | None = None
    """The fall of a class's logit if it is ablated (`PictureEffect.effect`). None if that was not asked."""

    @property
    def name(self) -> str:
        """Layer and index, by which an answer cites it."""
        return self.row.name

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of its description. Empty without one."""
        return tuple(self.row.header.get("labels") or ())

    @property
    def verdict(self) -> str:
        """The verdict on its description."""
        return self.row.verdict.verdict.value

    @property
    def score(self) -> float | None:
        """The AUC against the worst control. None if its description was not tested."""
        return self.row.verdict.worst.auc if self.row.verdict.worst else None

    @property
    def evidence(self) -> tuple[str, ...]:
        """Why it is cited, for people: the texts and pictures that answer."""
        found = [f'"{first_line(self.match.text, 80)}"'] if self.match else []
        found += [self.bank.text] if self.bank else []
        if self.responses:
            least = min(each.percent for each in self.responses)
            pictures = "the picture" if len(self.responses) == 1 else "each picture"
            found.append(f"{pictures} excites it more than {least:.1f} % of the dataset")
        return (*found, *([f"logit {-self.effect:+.2f} without it"] if self.effect is not None else []))

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key: the most important first, then most kinds of evidence, then the best match and verdict."""
        kinds = sum(map(bool, (self.match, self.bank, self.responses)))
        matched = self.match.order if self.match else (0.0, 0.0)
        percent = min((each.percent for each in self.responses), default=0.0)
        return -(self.effect or 0.0), -kinds, matched, -percent, self.row.rank, self.row.investigation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """The answer to a question about a run: units, the best first."""

    question: str
    asked: str
    """The words that were searched. Empty if pictures alone were asked about."""
    units: tuple[CitedUnit, ...]
    considered: int
    """Number of units that the question is about."""
    sources: tuple[str, ...]
    """What was searched, in words, and what was not and why."""
    reasons: PredictionReasons | None = None
    """Of a prediction, if that was asked."""
    phrased: str = ""
    """The answer in the words of a language model, which cites units in brackets. Empty without one."""
    struck: tuple[str, ...] = ()
    """What the model cited without being among `units`. It is struck from `phrased`."""
    unphrased: str = ""
    """Why the language model gave no answer. Empty if it gave one, or was not asked."""

    @property
    def told(self) -> tuple[CitedUnit, ...]:
        """The units that a language model is told of, and may cite."""
        return self.units[:_TOLD]


class RunQuestions:
    """Answers questions about one run. Texts are compared by meaning with `embed`, else by words."""

    def __init__(self, run: Run, embed: "TextEmbedding | None" = None):
        self._run, self._embed = Snapshot.of_run(run), embed
        self._rows = make_rows(self._run, run.name)
        self._target: Any = None
        self._tops: dict[Unit, list[str]] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the run's units."""
        return tuple(dict.fromkeys(row.unit.layer for row in self._rows))

    def ask(self, question: str, pictures: Sequence[str] = ()) -> RunAnswer:
        """Finds the units that answer a question.

        Args:
            question: Words, with the layers that they are about ("of layer4") and conditions of the report's search, such as
                `verdict:supported` or `score>0.8`. It may be empty if pictures are given.
            pictures: Image files. Units answer that respond to all of them: their activation is above that of LEAST_PERCENT %
                of the dataset images. The target is loaded.

        Raises:
            UsageError: The question has no words and there are no pictures, it names an unknown field or layer, or a file is
                no image.
        """
        query = read_query(question)
        words, layers = self._divide(query.words)
        if (layers or query.conditions) and {*re.findall(r"\w+", words.casefold())} <= QUESTION_WORDS:
            words = ""  # "units of layer4"
        if {*re.findall(r"\w+", words.casefold())} & DENIALS:
            raise UsageError(
                f'{first_line(words, 80)}: a question cannot deny; leave units out with a minus, such as "boats -night"'
            )
        rows = [row for row in query.select(self._rows, self._embed) if not layers or row.unit.layer in layers]
        search = TextSearch(words, run_lexicon(self._run.config()), self._embed)
        if not (search.asked or pictures or query.conditions or query.without or layers):
            raise UsageError("the question has no words; ask for example: which units respond to boats?")
        if not (search.asked or pictures):
            found, sources = [CitedUnit(row=row) for row in rows], ["conditions alone"]
        else:
            found, sources = self._find(search, rows)
            if pictures:
                found = _join(found, rows, self._responding(rows, pictures))
                sources.append(f"activations on {len(pictures)} picture{'s' if len(pictures) > 1 else ''}")
        return RunAnswer(
            question=question,
            asked=search.asked,
            units=tuple(sorted(found, key=lambda each: each.order)),
            considered=len(rows),
            sources=tuple(sources),
        )

    def why(self, picture: str, named: str = "") -> RunAnswer:
        """Finds the units that matter for the predicted class of a picture, or for the class `named`.

        The most active units on the picture, compared with their own dataset, are ablated one by one.

        Raises:
            UsageError: The file is no image, the target is no network with classes, its exemplars are missing, or it has no
                such class.
        """
        image, rows = _read_picture(picture), {row.unit: row for row in reversed(self._rows)}
        active = rank_units(self._loaded(), image, self._statistics(list(rows)))
        reasons = find_reasons(self._loaded(), image, active, named)
        units = tuple(
            CitedUnit(row=rows[each.response.unit], responses=(each.response,), effect=each.effect)
            for each in reasons.units
        )
        return RunAnswer(
            question=f"why {reasons.predicted}?",
            asked="",
            units=units,
            considered=reasons.ablated,
            sources=(
                f"the {reasons.ablated} units of the run that are most active on the picture, ablated one by one",
            ),
            reasons=reasons,
        )

    def phrase(self, answer: RunAnswer, model: str) -> RunAnswer:
        """Lets a language model say an answer in words. It has to cite units; those that were not found are struck.

        Args:
            answer: Of `ask` or `why`. Without units nothing is asked.
            model: A config with a backbone, or `run` for the run's own backbone.

        Raises:
            UsageError: The config has no language model.
            ServiceError: The model fails.
        """
        if not answer.units:
            return answer
        stored = self._run.config()
        if model != OWN_BACKBONE:  # the run's address and prices are not those of another model
            stored = {key: value for key, value in stored.items() if key != "backbone"}
        config = restore(stored, self._run.files.root, [] if model == OWN_BACKBONE else [model])
        if not of_config(config.backbone).reads_prompts:
            raise UsageError(f"--model {model}: backbone.kind={config.backbone.kind} is no language model")
        # The weights of a viewer may not be on this machine.
        loaded = backbones.backbone(config, has_images=False)
        asked = metered(loaded, "backbone", command_ledger(self._run, config), 0.0)
        speaker = LanguageModel(asked, backbones.backbone_name(config))
        return phrase_answer(answer, speaker, self.layers)

    # -- words -----------------------------------------------------------------------------------------------------------

    def _divide(self, text: str) -> tuple[str, set[str]]:
        """Returns a question without the layers that it names, and these."""
        known = {layer.casefold(): layer for layer in self.layers}
        kept, layers = list[str](), set[str]()
        for word in text.split():
            plain = word.strip("?,;.!:").casefold()
            is_cued = bool(kept) and _CUES.fullmatch(kept[-1]) is not None
            joined = f"{kept[-1].casefold()}{plain}" if kept else ""
            has_number = any(letter.isdigit() for letter in plain) and any(letter.isalpha() for letter in plain)
            if plain in known and (is_cued or has_number or not plain.isalpha()):
                layers.add(known[plain])
            elif plain.isdecimal() and joined in known:  # "of layer 4"
                layers.add(known[joined])
                kept.pop()
            elif is_cued and has_number and get_close_matches(plain, known, 1):
                raise unknown_layer(first_line(plain, 80), str(self._run.config()["target"]["name"]), list(self.layers))
            else:
                kept.append(word)
        return " ".join(kept), layers

    def _find(self, search: TextSearch, rows: Sequence[UnitRow]) -> tuple[list[CitedUnit], list[str]]:
        if not search.asked:
            return [], []
        said = [
            [*(row.header.get("labels") or ()), row.header.get("description") or "", row.class_name] for row in rows
        ]
        matches = search.find(said)
        nothing: list[None] = [None] * len(rows)
        sources = [f"labels and descriptions, by {search.by}"]
        if unknown := search.unknown(text for several in said for text in several):
            sources.append(f"not {', '.join(unknown[:_UNKNOWN])}, which none of them has")
        tops, note = self._bank_tops(rows)
        shown: Sequence[BankEvidence | None] = nothing
        prompts: Sequence[tuple[str, ...]] = [()] * len(rows)
        if tops is not None:
            everything, own = tops
            shown = find_shown(search, everything, own)
            sources.append(f"prompts and activations of {len(everything):,} images of the bank")
            seen = list(dict.fromkeys(prompt for each, top in zip(shown, own, strict=True) if each for prompt in top))
            matched = search.find([[each] for each in seen], everything)
            showing = {prompt for prompt, match in zip(seen, matched, strict=True) if match}
            prompts = [
                tuple(prompt for prompt in top if prompt in showing) if each else ()
                for each, top in zip(shown, own, strict=True)
            ]
        elif note:
            sources.append(note)
        together = zip(rows, matches, shown, prompts, strict=True)
        cited = [CitedUnit(row=row, match=match, bank=bank, prompts=seen) for row, match, bank, seen in together]
        return [each for each in cited if each.match or each.bank], sources

    def _bank_tops(self, rows: Sequence[UnitRow]) -> tuple[tuple[list[str], list[list[str]]] | None, str]:
        """Returns the prompts of all images of the run's bank, and those of each unit's most exciting ones. None and why if
        there are none."""
        try:
            if self._bank is None:
                return None, ""
            return ([each.prompt for each in self._bank.kept.values()], [self._top(row.unit) for row in rows]), ""
        except (OpenMaiaError, OSError) as error:
            return None, f"not the bank of the run, which cannot be read ({first_line(str(error), 200)})"

    @cached_property
    def _bank(self) -> MeasuredBank | None:
        """None if the run has none. Raises StoreError if it is not kept any more, or is damaged."""
        stored = self._run.config()
        if not stored["bank"]["images"]:
            return None
        config = restore(stored, self._run.files.root)
        config = replace(config, paths=replace(config.paths, exemplars=exemplars_root(self._run, stored["paths"])))
        bank = find_bank(config, lambda: datasets.image_dataset(config))
        if bank is None:
            raise StoreError("it is not kept any more")
        return MeasuredBank.of(bank, _store(measured_config(config, bank)))

    def _top(self, unit: Unit) -> list[str]:
        if self._bank is not None and unit not in self._tops:
            self._tops[unit] = [each.prompt for each in self._bank.read(unit) if each.exemplar.kind == "top"]
        return self._tops[unit]

    # -- pictures ---------------------------------------------------------------------------------------------------------

    def _responding(self, rows: Sequence[UnitRow], pictures: Sequence[str]) -> dict[Unit, tuple[PictureResponse, ...]]:
        images = [_read_picture(each) for each in pictures]
        if not rows:
            return {}
        known = self._statistics(list(dict.fromkeys(row.unit for row in rows)))
        ranked = [{each.unit: each for each in rank_units(self._loaded(), image, known)} for image in images]
        found = {unit: tuple(several[unit] for several in ranked) for unit in ranked[0]}
        return {unit: several for unit, several in found.items() if all(x.percent >= LEAST_PERCENT for x in several)}

    def _statistics(self, units: Sequence[Unit]) -> dict[Unit, UnitExemplars]:
        """Raises UsageError if no unit has exemplars."""
        stored = find_exemplars(self._run)
        found = stored.statistics(units)
        if not found:
            raise UsageError(
                f"a picture is compared with the dataset of each unit, and no exemplars of this run are in {stored.place}; "
                "`openmaia exemplars CONFIG` computes them"
            )
        return found

    def _loaded(self) -> Any:
        if self._target is None:
            self._target = targets.target(restore(self._run.config(), self._run.files.root))
        return self._target


def _join(
    found: Sequence[CitedUnit], rows: Sequence[UnitRow], responding: Mapping[Unit, tuple[PictureResponse, ...]]
) -> list[CitedUnit]:
    joined = [replace(each, responses=responding.get(each.row.unit, ())) for each in found]
    named = {each.row.investigation for each in found}
    others = [row for row in rows if row.unit in responding and row.investigation not in named]
    return [*joined, *(CitedUnit(row=row, responses=responding[row.unit]) for row in others)]


def _read_picture(path: str) -> EncodedImage:
    try:
        data = user_path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give an image file") from error
    return read_picture(data, path)


def _store(config: "Config") -> ExemplarStore:
    return ExemplarStore.at(
        config.paths.exemplars, config.target.name, config.exemplars.dataset or config.pictures.kind
    )


def phrase_answer(answer: RunAnswer, model: LanguageModel, layers: Sequence[str]) -> RunAnswer:
    """Returns an answer with `phrased` or `unphrased`. `layers` are those of the run, to find what is cited without brackets."""
    known, lines = {each.name for each in answer.told}, [_line(each) for each in answer.told]
    text = fill_template(
        "ask",
        question=first_line(answer.question),
        count=_count_told(answer),
        units="\n".join(lines),
        example=answer.units[0].name,
    )
    cited = _citations(layers)

    def read(reply: str) -> str:
        said = _LISTED.sub(lambda each: re.sub(r"\s*[,;]\s*", "], [", each[0]), " ".join(reply.split()))
        if not any(_cited_name(each) in known for each in cited.finditer(said)):
            raise MalformedAnswer(f"it names no unit of the lines in brackets, such as [{answer.units[0].name}]")
        return said

    try:
        said = model.ask(Question.of(text), read)
    except (UnansweredQuestion, ServiceError) as error:
        return replace(answer, unphrased=error.message)
    struck = [name for each in cited.finditer(said) if (name := _cited_name(each)) not in known]
    phrased = cited.sub(lambda each: each[0] if _cited_name(each) in known else "[struck]", said)
    return replace(answer, phrased=phrased, struck=tuple(dict.fromkeys(struck)))


def _count_told(answer: RunAnswer) -> str:
    """Returns how many units were found, and how many of these a language model is told of, in words."""
    found, told = len(answer.units), len(answer.told)
    return f"{found:,} unit{'' if found == 1 else 's'}" + (
        f", of which these are the best {told}" if told < found else ""
    )


def _citations(layers: Sequence[str]) -> re.Pattern[str]:
    """Matches what stands in brackets, and names of units outside of them."""
    names = "|".join(re.escape(layer) for layer in sorted(layers, key=len, reverse=True))
    return re.compile(rf"\[([^\[\]]*)\]|\b((?:{names or '(?!)'})/\d+(?: #\d+)?)", re.IGNORECASE)


def _cited_name(found: re.Match[str]) -> str:
    return (found[1] if found[1] is not None else found[2]).strip()


def _line(unit: CitedUnit) -> str:
    said = "; ".join(unit.labels) or unit.row.header.get("description") or "nothing was said of it"
    score = "" if unit.score is None else f", AUC {unit.score:.2f}"
    return f"[{unit.name}] {first_line(said, _TOLD_TEXT)} ({unit.verdict}{score}); {'; '.join(unit.evidence)}"
