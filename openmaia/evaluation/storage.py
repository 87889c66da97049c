"""Stores trials and evaluations as Parquet files: a row for each image, with the responses of all units of the layer."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa

from openmaia.core.errors import StoreError
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import PromptOverlap
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim, Sharing
from openmaia.evaluation.compared import MAX_PARTNERS, Evaluation, Partners, unlike
from openmaia.evaluation.scores import score_header
from openmaia.evaluation.trials import Sightings, Stimulus, Trial
from openmaia.runs import tables
from openmaia.runs.facts import wrong_score
from openmaia.runs.files import naming
from openmaia.runs.records import dumps
from openmaia.runs.results import fingerprint
from openmaia.runs.run import EVALUATION, RANDOM_WORDS, TRIALS, InvestigationId, Run

_VERSION = 9

_TEXT, _TEXTS = pa.string(), pa.list_(pa.field("element", pa.string(), nullable=False))
_COLUMNS = {
    **dict.fromkeys(("role", "label", "prompt", "digest"), _TEXT),
    **dict.fromkeys(("sources", "missing_terms"), _TEXTS),
    "shows": pa.bool_(),
    "verified_by": _TEXT,
    "activation": pa.float64(),
    **dict.fromkeys(("responses", "data"), pa.binary()),
}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=name == "shows") for name, kind in _COLUMNS.items()])

_TRIAL = ("outcome", "cause", "writer", "protocol", "generator", "standard")
_HEADER: dict[str, Any] = {
    "claim": Claim,
    "trial": dict[str, str],
    "detection": dict[str, Any],
    **dict.fromkeys(("location", "scale"), str),
    "overlap": PromptOverlap | None,
    "exemplars": float | None,
    "sightings": Sightings | None,
    "looks": list[int],
    "miss": float,
}
"""Keys of the header of every file, with their types. That of an evaluation also has those of `openmaia.runs.facts`, and
`compared`: the digests (`Claim.basis`) of the descriptions with which its unit is compared."""

_WITHOUT_IMAGES = tuple(name for name in _COLUMNS if name != "data")


def to_parquet(result: Trial | Evaluation) -> bytes:
    """Serialises a trial or an evaluation, whose header also holds the scores."""
    trial = result.trial if isinstance(result, Evaluation) else result
    rows = [
        {name: getattr(stimulus, name) for name in _SCHEMA.names if name != "responses"}
        | {"responses": response.tobytes()}
        for stimulus, response in zip(trial.stimuli, trial.matrix, strict=True)
    ]
    header: dict[str, Any] = {
        "version": _VERSION,
        "claim": asdict(trial.claim),
        "trial": {name: getattr(trial, name) for name in _TRIAL},
        "location": _encode(trial.location),
        "scale": _encode(trial.scale),
        "detection": dict(trial.detection),
        "exemplars": trial.exemplars,
        "sightings": None if trial.sightings is None else asdict(trial.sightings),
        "overlap": None if trial.overlap is None else asdict(trial.overlap),
        "looks": list(trial.looks),
        "miss": trial.miss,
    }
    if isinstance(result, Evaluation):
        header |= score_header(result)
        header["compared"] = [other.claim.basis for other in (*result.others, *result.words)]
    return tables.dump(rows, _SCHEMA, header)


def read_trial(data: bytes, *, images: bool = True) -> Trial:
    """Reads the trial of a trial or evaluation file; without its images if `images` is False. Raises StoreError if it
    is damaged or of another version.
    """
    return _trial(*_load(data, images))


def _load(data: bytes, images: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows, header = tables.load(data, "an evaluation", None if images else _WITHOUT_IMAGES, _SCHEMA)
    check_header(header)
    return rows, header


def _trial(rows: list[dict[str, Any]], header: dict[str, Any]) -> Trial:
    try:
        matrix = [np.frombuffer(row.pop("responses"), np.float16) for row in rows]
        trial = Trial(
            claim=_claim(header),
            stimuli=tuple(_stimulus(row) for row in rows),
            matrix=np.stack(matrix) if matrix else np.zeros((0, 0), np.float16),
            location=_decode(header["location"]),
            scale=_decode(header["scale"]),
            detection=header["detection"],
            exemplars=header["exemplars"],
            sightings=_sightings(header["sightings"]),
            overlap=None if header["overlap"] is None else PromptOverlap(**header["overlap"]),
            looks=tuple(header["looks"]),
            miss=header["miss"],
            **header["trial"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"an evaluation that lacks something: {error!r}") from error
    if not all(np.isfinite(each.activation) for each in trial.stimuli) or not np.isfinite(trial.matrix).all():
        raise StoreError("an evaluation with an activation or a response that is NaN or infinite")
    if trial.stimuli and trial.claim.unit.index >= trial.matrix.shape[1]:
        raise StoreError(f"an evaluation of unit {trial.claim.unit.index} with {trial.matrix.shape[1]} responses")
    return trial


def check_header(header: dict[str, Any]) -> None:
    """Raises StoreError unless the header of a trial or evaluation file has the current version, keys and types."""
    if header.get("version") != _VERSION:
        raise StoreError(
            f"an evaluation of version {str(header.get('version'))[:40]}; this OpenMAIA reads version {_VERSION}; "
            "openmaia evaluate RUN --repeat-damaged evaluates it again"
        )
    for key, hint in _HEADER.items():
        place = find_mistyped(header[key], hint) if key in header else ""
        if place is not None:
            raise StoreError(
                f"an evaluation that lacks {key + place!r}, or has it with another type than OpenMAIA writes"
            )
    if header["trial"].keys() != {*_TRIAL}:
        raise StoreError("an evaluation that lacks a key of 'trial'")
    if "facts" in header and (key := wrong_score(header)) is not None:
        raise StoreError(f"an evaluation that lacks {key!r}, or has it with another type than OpenMAIA writes")


def _claim(header: dict[str, Any]) -> Claim:
    stored = header["claim"]
    return Claim(**stored | {"unit": Unit(**stored["unit"]), "labels": tuple(stored["labels"])})


def _sightings(stored: dict[str, Any] | None) -> Sightings | None:
    return None if stored is None else Sightings(**{name: tuple(values) for name, values in stored.items()})


def _stimulus(row: dict[str, Any]) -> Stimulus:
    values: dict[str, Any] = row | {"sources": tuple(row["sources"]), "missing_terms": tuple(row["missing_terms"])}
    return Stimulus(**values)


def _encode(values: FloatArray) -> str:
    return base64.b64encode(values.astype(np.float32).tobytes()).decode()


def _decode(text: str) -> FloatArray:
    return np.frombuffer(base64.b64decode(text), np.float32).astype(np.float64)


class StoredTrials:
    """The trials of a run. Iteration reads them one by one, sorted by unit, without images and without damaged ones."""

    def __init__(self, run: Run, investigations: Iterable[InvestigationId] | None = None):
        """Selects the trials of `investigations`, by default of all evaluated ones."""
        self._run = run
        self._investigations = sorted(run.evaluated() if investigations is None else investigations)
        self.cached = lru_cache(maxsize=4 * MAX_PARTNERS)(self.read)
        self.words = lru_cache(maxsize=4)(self._words)

    def __iter__(self) -> Iterator[Trial]:
        return (trial for each in self._investigations if (trial := self.readable(each)) is not None)

    def readable(self, investigation: InvestigationId, *, images: bool = False) -> Trial | None:
        """Reads the trial of one investigation; None if the file is missing or damaged."""
        try:
            return self.read(investigation, images=True) if images else self.cached(investigation)
        except StoreError:
            return None

    def read(self, investigation: InvestigationId, *, images: bool = False) -> Trial:
        """Reads the trial of one investigation. Raises StoreError if the file is missing or damaged."""
        # The trial of an evaluated investigation is part of its evaluation file.
        evaluation = self._run.artifact(EVALUATION, investigation)
        try:
            return self._read(EVALUATION, investigation, evaluation or b"", images)
        except StoreError:
            trial = self._run.artifact(TRIALS, investigation)  # after the evaluation of another description
            if trial is None and evaluation is not None:
                raise
        return self._read(TRIALS, investigation, trial or b"", images)

    def _read(self, kind: str, investigation: InvestigationId, data: bytes, images: bool) -> Trial:
        with naming(self._run.artifact_path(kind, investigation)):
            rows, header = _load(data, images)
            if reason := self._run.misfit(kind, investigation, header):
                raise StoreError(reason)
            return _trial(rows, header)

    def _words(self, layer: str) -> tuple[Trial, ...]:
        trials: list[Trial] = []
        for each in sorted(each for each in self._run.artifacts(RANDOM_WORDS) if each.unit.layer == layer):
            with suppress(StoreError):
                trials.append(self._read(RANDOM_WORDS, each, self._run.artifact(RANDOM_WORDS, each) or b"", False))
        return tuple(trials)

    @cached_property
    def sharing(self) -> Sharing:
        """When two descriptions of this run are alike."""
        return self._run.config()["evaluate"]["sharing"]

    @cached_property
    def _outcomes(self) -> dict[Claim, str]:
        return {trial.claim: trial.outcome for trial in self}

    @cached_property
    def _partners(self) -> Partners:
        return Partners((claim for claim, outcome in self._outcomes.items() if outcome == "tested"), self.sharing)

    def outdated(self) -> list[InvestigationId]:
        """Returns the evaluated investigations whose scores compare with other trials than those that would be chosen
        now, because trials were added or changed.
        """
        claims = {claim.investigation: claim for claim in self._outcomes}
        headers = self._run.evaluation_headers(claims)
        return [each for each, header in headers if header.get("compared") != self._compared(claims[each])]

    def _compared(self, claim: Claim) -> list[str]:
        words = [trial.claim for trial in unlike(claim, self.words(claim.unit.layer), self.sharing)]
        return [each.basis for each in (*self._partners.nearest(claim), *words)]

    def evaluations(self, of: Iterable[InvestigationId] | None = None, *, images: bool = False) -> Iterator[Evaluation]:
        """Yields the evaluation of each investigation, by default of all selected ones, without damaged or missing
        trials. The trials for comparisons always come from all selected ones.
        """
        for investigation in self._investigations if of is None else of:
            trial = self.readable(investigation, images=images)
            if trial is None:
                continue
            yield Evaluation(
                trial=trial,
                others=tuple(self.cached(claim.investigation) for claim in self._partners.nearest(trial.claim)),
                words=unlike(trial.claim, self.words(trial.claim.unit.layer), self.sharing),
            )


def write_result(run: Run, name: str, result: dict[str, Any]) -> None:
    """Stores in a file of the run directory what was computed from its evaluations."""
    stamped = result | {"stamp": compute_stamp(run, 0)}
    run.files.write(name, json.dumps(stamped, ensure_ascii=False).encode(errors="replace"))


def read_result(run: Run, name: str) -> dict[str, Any] | None:
    """Reads what `write_result` stored; None if it is missing, damaged, or older than the run's evaluations."""
    try:
        stored: Any = run.files.read_json(name)
        if not isinstance(stored, dict):
            return None
        found = cast("dict[str, Any]", stored)
        return found if found.pop("stamp", None) == compute_stamp(run, 0) else None
    except StoreError:
        return None


def compute_stamp(run: Run, resamples: int) -> str:
    """Returns a cache key for results computed from the evaluations of a run and its trials of random words.
    Evaluations of other descriptions than those of the records do not enter it.
    """
    headers = run.evaluation_headers(sorted(run.artifacts(EVALUATION)))
    evaluations = [[each.path, fingerprint(header)] for each, header in headers]
    words = sorted(each.path for each in run.belonging(RANDOM_WORDS))
    return hashlib.sha256(dumps([_VERSION, resamples, evaluations, words]).encode()).hexdigest()
