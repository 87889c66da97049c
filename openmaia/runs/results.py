"""The results of the tests of a run's descriptions."""

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any, cast

import pyarrow as pa

from openmaia.config.loading import defining_values, stored_values
from openmaia.core.documents import parse_yaml
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.runs import tables
from openmaia.runs.facts import stored_scores, wrong_score
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId
from openmaia.runs.parquet import check_record
from openmaia.runs.records import dumps

EVALUATION, TRIALS = "evaluation", "trials"
"""Folders of a run: tests with their scores, and tests before they are scored."""
RANDOM_WORDS = "random_words"
"""Folder of a run for the trials of random words as descriptions. In its file names, the number of the word takes the
place of the replicate."""
SIGNIFICANCE = "significance.parquet"
"""One file for all descriptions, because the p-value of each depends on the tests of others."""
EVALUATIONS = "evaluations"
EXTENSIBLE = ("units", "replicates", "target.layers")
"""Config keys that can be changed to add investigations to a run."""
_ANSWER = ("target", "layer", "index", "replicate", "description", "labels", "drawn")
"""Keys of the summary of a record on which a test of its description depends."""

SIGNIFICANCE_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("target", "layer")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("index", "replicate")),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("p", "q")),
        pa.field("null", pa.int64(), nullable=False),
        pa.field("evaluation", pa.string(), nullable=False),
    ]
)
"""`null` is the number of values in the null distribution of the layer, and `evaluation` the `fingerprint` of the
evaluation."""


@dataclass(frozen=True, slots=True)
class RunResults:
    """The config of a run, and the results of the tests of its descriptions: a folder for each kind, a file per
    investigation.

    A further evaluation has a config and results of its own, but uses the plan and the investigations of its run.
    """

    files: Files
    """The run directory, or that of a further evaluation."""
    source: Files | None = None
    """For a further evaluation the directory of its run, else None."""

    @property
    def investigations(self) -> Files:
        """The directory with plan, records, journals and failures."""
        return self.source or self.files

    @property
    def name(self) -> str:
        """Name of the run directory. For the further evaluation `n60` of the run `demo`, it is `demo as n60`."""
        own = self.files.name
        return own if self.source is None else f"{self.source.name} as {own}"

    def config(self) -> dict[str, Any]:
        """Returns the config as nested dicts. Raises StoreError if it is damaged."""
        path = self.files.path("config.yaml")
        try:
            return copy.deepcopy(_stored_config(self.files.read("config.yaml") or b""))
        except ValueError as error:
            cause = error.message if isinstance(error, UsageError) else str(error)
            raise StoreError(f"{path} is damaged, or of another version of OpenMAIA: {cause}") from error

    # -- which test belongs to which answer --------------------------------------------------------------------------

    def identity(self, *without: str) -> str:
        """Returns a digest of the config keys that results depend on (see `defining_values`); "" without a config.

        `without` are sections and keys to leave out, besides EXTENSIBLE. Raises StoreError if the config is damaged.
        """
        data = self.files.read("config.yaml")
        try:
            return "" if data is None else _identity(data, without)
        except ValueError as error:
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: {error}") from error

    def misfit(self, folder: str, investigation: InvestigationId, header: tables.TableRow) -> str:
        """Returns why a stored test does not count for the investigation under whose name it is stored.

        The types in `header` need not be checked yet. Empty if the test belongs to the record, or if the header is
        damaged.
        """
        return self._misfit(folder, investigation, header, self.identity)

    def _misfit(
        self, folder: str, investigation: InvestigationId, header: tables.TableRow, identity: Callable[[], str]
    ) -> str:
        if find_mistyped(header.get("claim"), _TestedClaim) is not None:
            return ""
        claim: dict[str, Any] = header["claim"]
        tested = InvestigationId(unit=Unit(**claim["unit"]), replicate=claim["replicate"])
        if tested != investigation:
            return f"it is the test of {tested.unit} (replicate {tested.replicate})"
        if folder == RANDOM_WORDS:
            row: Mapping[str, Any] | None = asdict(tested.unit) | claim | {"drawn": ""}
        elif (row := self.summary(investigation)) is None:
            return "there is no readable record of the description that it tests"
        if claim["basis"] == basis(row, identity()):
            return ""
        answer = claim["description"], claim["labels"]
        if answer != (row["description"], list(row["labels"])):
            return f"it tests another description than that of the record: {(answer[0] or str(answer[1]))[:60]!r}"
        return "it is a test with another config, or of an investigation that drew other images"

    def misfits(self, folder: str) -> dict[InvestigationId, str]:
        """Returns the reasons of `misfit` for the tests that do not belong to their records."""
        found: dict[InvestigationId, str] = {}
        identity = cache(self.identity)  # or each test would read the config again
        for each in self.artifacts(folder):
            with suppress(StoreError):
                if reason := self._misfit(folder, each, self._header(folder, each), identity):
                    found[each] = reason
        return found

    def belonging(self, folder: str) -> set[InvestigationId]:
        """Returns the investigations with a stored test, without those of `misfits`.

        Those with a damaged test are included: it is repeated only if the user asks for it.
        """
        return self.artifacts(folder) - self.misfits(folder).keys()

    def summary(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns what `openmaia.runs.summary.summary` made of the record. None if it is missing, damaged or foreign."""
        name = record_name(investigation)
        try:
            if not self.investigations.exists(name):
                return None
            return check_record(tables.header(self.investigations, name), investigation)
        except StoreError:
            return None

    def _header(self, folder: str, investigation: InvestigationId) -> tables.TableRow:
        return tables.header(self.files, f"{folder}/{investigation.path}.parquet")

    # -- results -----------------------------------------------------------------------------------------------------

    def write_artifact(self, folder: str, investigation: InvestigationId, data: bytes) -> None:
        """Writes a Parquet file about an investigation to a folder, such as `evaluation` or `bias`."""
        self.files.write(f"{folder}/{investigation.path}.parquet", data)

    def artifact(self, folder: str, investigation: InvestigationId) -> bytes | None:
        """Returns the content of an investigation's file in a folder, or None."""
        return self.files.read(f"{folder}/{investigation.path}.parquet")

    def artifact_path(self, folder: str, investigation: InvestigationId) -> str:
        """Returns the full path of an investigation's file in a folder, for messages."""
        return self.files.path(f"{folder}/{investigation.path}.parquet")

    def artifacts(self, folder: str) -> set[InvestigationId]:
        """Returns the investigations that have a file in a folder."""
        return set(InvestigationId.of_paths(self.files.names(folder)))

    def delete_artifact(self, folder: str, investigation: InvestigationId) -> None:
        """Deletes an investigation's file in a folder, if it exists."""
        self.files.delete(f"{folder}/{investigation.path}.parquet")

    def evaluated(self) -> set[InvestigationId]:
        """Returns the investigations with an evaluation that belongs to their record."""
        return self.belonging(EVALUATION)

    def evaluation(self, investigation: InvestigationId) -> bytes | None:
        """Returns the content of an evaluation's file; None if there is none.

        Raises StoreError if it is damaged, or does not belong to the record.
        """
        data = self.artifact(EVALUATION, investigation)
        if data is not None and (
            reason := self.misfit(EVALUATION, investigation, self._header(EVALUATION, investigation))
        ):
            raise StoreError(f"{self.artifact_path(EVALUATION, investigation)}: {reason}")
        return data

    def stored_score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores (`openmaia.runs.facts.stored_scores`) of a description without the p-values.

        None if the evaluation is missing, damaged, or does not belong to the record.
        """
        found = next(self.evaluation_headers([investigation]), None)
        return None if found is None else stored_scores(found[1])

    def evaluation_headers(
        self, investigations: Iterable[InvestigationId]
    ) -> Iterator[tuple[InvestigationId, tables.TableRow]]:
        """Yields the headers of evaluations, without those for which `stored_score` returns None."""
        identity = cache(self.identity)  # or each evaluation would read the config again
        for each in investigations:
            try:
                name = f"{EVALUATION}/{each.path}.parquet"
                header = tables.header(self.files, name) if self.files.exists(name) else {}
            except StoreError:
                continue
            if wrong_score(header) is None and not self._misfit(EVALUATION, each, header, identity):
                yield each, header

    def score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the entry of an investigation in `scores`, or None."""
        return self.scores([investigation]).get(investigation)

    def scores(self, investigations: Iterable[InvestigationId] | None = None) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the scores of evaluated descriptions (None: of all) with `p`, `q` and `null` of `significance`.

        Evaluations for which `stored_score` returns None are left out. The p-values are missing until all tests of the
        run are scored, and count for the evaluation from which they were computed. Only the footers of files are read.
        """
        chosen = sorted(self.artifacts(EVALUATION)) if investigations is None else list(investigations)
        significance = self.significance()
        found: dict[InvestigationId, dict[str, Any]] = {}
        for each, header in self.evaluation_headers(chosen):
            p = significance.get((each, fingerprint(header)), {}) if significance else {}
            found[each] = stored_scores(header) | p
        return found

    def significance(self) -> dict[tuple[InvestigationId, str], dict[str, Any]]:
        """Returns `p`, `q` and `null` of tested descriptions, by investigation and `fingerprint` of the evaluation.

        `q` is the p-value of the permutation test adjusted for the false discovery rate, and `null` the number of
        values in the null distribution of the layer. Empty before the run is evaluated, or if the file is damaged.
        """
        data = self.files.read(SIGNIFICANCE)
        try:
            path = self.files.path(SIGNIFICANCE)
            rows = [] if data is None else tables.load(data, path, schema=SIGNIFICANCE_SCHEMA)[0]
        except StoreError:
            return {}  # the next evaluation writes it again
        values = {(InvestigationId.of_row(row), row["evaluation"]): row for row in rows}
        return {
            key: {name: row[name] for name in ("p", "q", "null")}
            for key, row in values.items()
            if 0 <= row["p"] <= 1 and 0 <= row["q"] <= 1
        }


def basis(row: Mapping[str, Any], identity: str) -> str:
    """Returns a digest of all that the test of a description depends on. A test with another digest does not count.

    `row` has the keys in _ANSWER, and `identity` is that of `RunResults.identity`.
    """
    answer = [row[key] for key in _ANSWER]
    return hashlib.sha256(dumps([answer, identity]).encode(errors="surrogatepass")).hexdigest()[:32]


def fingerprint(header: tables.TableRow) -> str:
    """Returns a digest of the header of an evaluation, which holds what was tested and all scores."""
    return hashlib.sha256(dumps(header).encode(errors="surrogatepass")).hexdigest()[:32]


def record_name(investigation: InvestigationId) -> str:
    """Returns the name of an investigation's record, relative to the run directory."""
    return f"records/{investigation.path}.parquet"


@dataclass(frozen=True, slots=True)
class _TestedClaim:
    """The types of the description in the header of a stored test (`openmaia.evaluation.claims.Claim`)."""

    unit: Unit
    replicate: int
    method: str
    description: str
    labels: list[str]
    basis: str


def _config(data: bytes) -> dict[str, Any]:
    loaded: Any = parse_yaml(data)
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[Any, Any], loaded)):
        raise ValueError("it holds no keys and values")
    return cast(dict[str, Any], loaded)


@lru_cache(maxsize=64)
def _stored_config(data: bytes) -> dict[str, Any]:
    # It takes many times as long as to read the file and to copy the values, and a report asks for it several times.
    return stored_values(_config(data), "config.yaml")


@lru_cache(maxsize=64)
def _identity(data: bytes, without: tuple[str, ...]) -> str:
    values = defining_values(_config(data), (*EXTENSIBLE, *without))
    return hashlib.sha256(dumps(values, default=str).encode(errors="surrogatepass")).hexdigest()
