"""Stores trials (tested descriptions) and evaluations (scored trials) as Parquet files.

Each row is a test image with the responses of all units of the layer.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from openmaia.core.errors import StoreError, UsageError
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.overlap import PromptOverlap
from openmaia.evaluation.analysis.statistics import FloatArray
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.scores import MAX_PARTNERS, Evaluation, partners
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.runs import tables
from openmaia.runs.files import naming
from openmaia.runs.records import dumps
from openmaia.runs.run import EVALUATION, RANDOM_WORDS, TRIALS, InvestigationId, Run
from openmaia.runs.summary import wrong_score

VERSION = 5

_COLUMNS = [
    ("role", pa.string()),
    ("label", pa.string()),
    ("prompt", pa.string()),
    ("digest", pa.string()),
    ("sources", pa.list_(pa.string())),
    ("missing_terms", pa.list_(pa.string())),
    ("shows", pa.bool_()),
    ("verified_by", pa.string()),
    ("activation", pa.float64()),
    ("responses", pa.binary()),
    ("data", pa.binary()),
]
_SCHEMA = pa.schema(_COLUMNS)

_HEADER: dict[str, Any] = {
    **dict.fromkeys(("claim", "trial", "detection"), dict),
    **dict.fromkeys(("location", "scale"), str),
    "overlap": (dict, type(None)),
}
"""Keys of the header of every file, with their types. That of an evaluation also has `scores`, a dict."""

WITHOUT_IMAGES = tuple(name for name, _ in _COLUMNS if name != "data")


def to_parquet(result: Trial | Evaluation) -> bytes:
    """Serialises a trial (a tested description) or an evaluation (a scored trial) to a Parquet file.

    The column `responses` holds the rows of `Trial.matrix`. The header of an evaluation also holds its scores.
    """
    trial = result.trial if isinstance(result, Evaluation) else result
    rows = [
        {name: getattr(stimulus, name) for name in _SCHEMA.names if name != "responses"}
        | {"responses": response.tobytes()}
        for stimulus, response in zip(trial.stimuli, trial.matrix, strict=True)
    ]
    header: dict[str, Any] = {
        "version": VERSION,
        "claim": asdict(trial.claim),
        "trial": {
            name: getattr(trial, name) for name in ("outcome", "cause", "writer", "protocol", "generator", "standard")
        },
        "location": _encode(trial.location),
        "scale": _encode(trial.scale),
        "detection": dict(trial.detection),
        "overlap": None if trial.overlap is None else asdict(trial.overlap),
    }
    if isinstance(result, Evaluation):
        header["scores"] = result.scores
    return tables.dump(rows, _SCHEMA, header)


def read_trial(data: bytes, *, images: bool = True) -> Trial:
    """Reads the trial (a tested description) from a trial or evaluation file; without its images if `images` is False.

    Raises:
        StoreError: The file is damaged or of another version.
    """
    rows, header = tables.load(data, "an evaluation", None if images else WITHOUT_IMAGES)
    check_header(header)
    try:
        matrix = [np.frombuffer(row.pop("responses"), np.float16) for row in rows]
        return Trial(
            claim=_claim(header),
            stimuli=tuple(_stimulus(row) for row in rows),
            matrix=np.stack(matrix) if matrix else np.zeros((0, 0), np.float16),
            location=_decode(header["location"]),
            scale=_decode(header["scale"]),
            detection=header["detection"],
            overlap=None if header["overlap"] is None else PromptOverlap(**header["overlap"]),
            **header["trial"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"an evaluation that lacks something: {error!r}") from error


def check_header(header: dict[str, Any]) -> None:
    """Checks that the header of a trial or evaluation file has the current version and the expected keys and types.

    Raises:
        StoreError: The version is another one, or a key is missing or has another type.
    """
    if header.get("version") != VERSION:
        raise StoreError(
            f"an evaluation of version {header.get('version')}; this OpenMAIA reads version {VERSION}; "
            "openmaia evaluate RUN --repeat-damaged evaluates it again"
        )
    expected = _HEADER | ({"scores": dict} if "scores" in header else {})
    for key, kind in expected.items():
        if key not in header or not isinstance(header[key], kind):
            raise StoreError(f"an evaluation that lacks {key!r}, or has it with another type than OpenMAIA writes")
    if "scores" in header and (key := wrong_score(header["scores"])) is not None:
        raise StoreError(
            f"an evaluation that lacks the score {key!r}, or has it with another type than OpenMAIA writes"
        )
    _claim(header)


def _claim(header: dict[str, Any]) -> Claim:
    stored = header["claim"]
    try:
        return Claim(**stored | {"unit": Unit(**stored["unit"]), "labels": tuple(stored["labels"])})
    except (KeyError, TypeError, UsageError) as error:  # UsageError: a label that is no text
        raise StoreError(f"an evaluation of a description that cannot be read: {error}") from error


def _stimulus(row: dict[str, Any]) -> Stimulus:
    values: dict[str, Any] = row | {"sources": tuple(row["sources"]), "missing_terms": tuple(row["missing_terms"])}
    return Stimulus(**values)


def _encode(values: FloatArray) -> str:
    return base64.b64encode(values.astype(np.float32).tobytes()).decode()


def _decode(text: str) -> FloatArray:
    return np.frombuffer(base64.b64decode(text), np.float32).astype(np.float64)


class StoredTrials:
    """The trials (tested descriptions) of a run.

    Iteration reads the trials one by one, sorted by unit and without their images. Damaged trials are skipped.
    """

    def __init__(self, run: Run, investigations: Iterable[InvestigationId] | None = None):
        """Selects the trials of `investigations`; None selects all evaluated investigations of the run."""
        self._run = run
        self._investigations = sorted(run.evaluated() if investigations is None else investigations)
        self.cached = lru_cache(maxsize=4 * MAX_PARTNERS)(self.read)
        self.words = lru_cache(maxsize=4)(self._words)

    def __iter__(self) -> Iterator[Trial]:
        return (trial for each in self._investigations if (trial := self.readable(each)) is not None)

    def readable(self, investigation: InvestigationId, *, images: bool = False) -> Trial | None:
        """Reads the trial (the test of a description) of one investigation; None if the file is missing or damaged."""
        try:
            return self.read(investigation, images=True) if images else self.cached(investigation)
        except StoreError:
            return None

    def read(self, investigation: InvestigationId, *, images: bool = False) -> Trial:
        """Reads the trial (the test of a description) of one investigation.

        If the investigation is evaluated, the trial is part of its evaluation file. Otherwise it has a file of its own.

        Raises:
            StoreError: The file is missing or damaged.
        """
        data = self._run.artifact(EVALUATION, investigation)
        kind = EVALUATION if data else TRIALS
        with naming(self._run.artifact_path(kind, investigation)):
            return read_trial(data or self._run.artifact(TRIALS, investigation) or b"", images=images)

    def _words(self, layer: str) -> tuple[Trial, ...]:
        """Reads the trials of random words of a layer, without damaged ones."""
        trials: list[Trial] = []
        for each in sorted(each for each in self._run.artifacts(RANDOM_WORDS) if each.unit.layer == layer):
            with suppress(StoreError):
                trials.append(read_trial(self._run.artifact(RANDOM_WORDS, each) or b"", images=False))
        return tuple(trials)

    @cached_property
    def _outcomes(self) -> dict[Claim, str]:
        return {trial.claim: trial.outcome for trial in self}

    @cached_property
    def _tested(self) -> list[Claim]:
        return [claim for claim, outcome in self._outcomes.items() if outcome == "tested"]

    def outdated(self) -> list[InvestigationId]:
        """Returns the evaluated investigations whose scores have to be computed again.

        Scores are outdated in two cases. Either they compare the unit with other trials than those that `partners`
        selects now, for example because trials were added. Or they use no trials of random words, although the layer
        has some now.
        """
        claims = {claim.investigation: claim for claim in self._outcomes}
        scores = self._run.scores(self._investigations)
        return [
            investigation
            for investigation, stored in sorted(scores.items())
            if (claim := claims.get(investigation)) is not None
            and (
                stored.get("others") != [other.unit.index for other in partners(claim, self._tested)]
                or (stored.get("auc_words") is None and bool(self.words(claim.unit.layer)))
            )
        ]

    def evaluations(self, of: Iterable[InvestigationId] | None = None, *, images: bool = False) -> Iterator[Evaluation]:
        """Yields the evaluation (a trial and the trials it is compared with) of each investigation.

        Args:
            of: The investigations; by default all those that the constructor selected. The trials for the comparisons
                always come from all selected ones.
            images: Whether the evaluated trials are read with their images.

        Yields:
            The evaluations. Damaged or missing trials are left out.
        """
        for investigation in self._investigations if of is None else of:
            trial = self.readable(investigation, images=images)
            if trial is None:
                continue
            others = partners(trial.claim, self._tested)
            yield Evaluation(
                trial=trial,
                others=tuple(self.cached(claim.investigation) for claim in others),
                words=self.words(trial.claim.unit.layer),
            )


def evaluation_stamp(run: Run, resamples: int) -> str:
    """Returns a cache key for results that are computed from the evaluations of a run.

    It is a hash of the file format's VERSION, of the number of bootstrap resamples, and of the names and sizes of two
    kinds of files: the evaluations, and the tests of random words, which are a control.
    """
    sizes = [run.files.sizes(folder) for folder in (EVALUATION, RANDOM_WORDS)]
    return hashlib.sha256(dumps([VERSION, resamples, *sizes]).encode()).hexdigest()
