"""The results of the tests of a run's descriptions, such as evaluations, with one file per investigation."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any, cast

import pyarrow as pa

from openmaia.config.loading import defining_values, stored_values
from openmaia.core.documents import parse_yaml
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.typed import mistyped
from openmaia.core.units import Unit
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId
from openmaia.runs.parquet import check_record
from openmaia.runs.records import dumps
from openmaia.runs.summary import wrong_score

EVALUATION, TRIALS = "evaluation", "trials"
"""Folders of a run for evaluations (tests of descriptions with new images), and for trials (the images and measurements
of such tests, before they are scored)."""
RANDOM_WORDS = "random_words"
"""Folder of a run for the trials (test images and measurements) of random words as descriptions, with which the agents'
descriptions are compared. In the names of these files, the number of the word takes the place of the replicate."""
SIGNIFICANCE = "significance.parquet"
"""File with the p-values of all evaluated descriptions of a run. It is one file, because the p-value of a description
depends on the test results of other descriptions."""
EVALUATIONS = "evaluations"
"""Folder of a run for further evaluations, which test its descriptions with another config."""
EXTENSIBLE = ("units", "replicates", "target.layers")
"""Config keys that can be changed to add investigations to a run."""
ANSWER = ("target", "layer", "index", "replicate", "description", "labels", "drawn")
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
"""Columns of SIGNIFICANCE: a row for each tested description. `null` is the number of values in the null distribution of
its layer, and `evaluation` the `fingerprint` of its evaluation."""


@dataclass(frozen=True, slots=True)
class RunResults:
    """The config of a run, and the results of the tests of its descriptions.

    Each kind of test has a folder, with one file per investigation.

    A further evaluation of a run, in the directory RUN/evaluations/NAME, has a config and results of its own, but uses
    the plan and the investigations of RUN.
    """

    files: Files
    """The run directory, or that of a further evaluation."""
    source: Files | None = None
    """The run directory that holds the plan and the investigations of a further evaluation. None for a run itself."""

    @property
    def investigations(self) -> Files:
        """The directory with the files of the investigations: their plan, records, journals and failures.

        For a run it is the run directory. A further evaluation has no such files of its own. For it, this is the
        directory of the run that it evaluates.
        """
        return self.source or self.files

    @property
    def name(self) -> str:
        """Name of the run directory.

        For the further evaluation `n60` of the run `demo`, it is `demo as n60`.
        """
        own = self.files.name
        return own if self.source is None else f"{self.source.name} as {own}"

    def config(self) -> dict[str, Any]:
        """Returns the config with the values of all keys as nested dicts. Raises StoreError if it is damaged."""
        path = self.files.path("config.yaml")
        try:
            return stored_values(_config(self.files.read("config.yaml") or b""), "config.yaml")
        except ValueError as error:
            cause = error.message if isinstance(error, UsageError) else str(error)
            raise StoreError(f"{path} is damaged, or of another version of OpenMAIA: {cause}") from error

    # -- which test belongs to which answer --------------------------------------------------------------------------

    def identity(self, *without: str) -> str:
        """Returns a digest of the config keys that results depend on (see `defining_values`); "" without a config.

        Args:
            without: Sections and keys to leave out, besides EXTENSIBLE.

        Raises:
            StoreError: The config is damaged.
        """
        data = self.files.read("config.yaml")
        try:
            return "" if data is None else _identity(data, without)
        except ValueError as error:
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: {error}") from error

    def misfit(self, folder: str, investigation: InvestigationId, header: tables.TableRow) -> str:
        """Returns why a stored test does not count for the investigation under whose name it is stored.

        Args:
            folder: The folder of the test.
            investigation: The investigation.
            header: The header of the test's file, whose types need not be checked yet.

        Returns:
            The reason. Empty if the test belongs to the investigation's record, or if the header is damaged.
        """
        return self._misfit(folder, investigation, header, self.identity)

    def _misfit(
        self, folder: str, investigation: InvestigationId, header: tables.TableRow, identity: Callable[[], str]
    ) -> str:
        if mistyped(header.get("claim"), _TestedClaim) is not None:
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
        """Returns the investigations whose stored test does not belong to their record, each with the reason."""
        found: dict[InvestigationId, str] = {}
        identity = cache(self.identity)  # or each test would read the config again
        for each in self.artifacts(folder):
            with suppress(StoreError):
                if reason := self._misfit(folder, each, self._header(folder, each), identity):
                    found[each] = reason
        return found

    def belonging(self, folder: str) -> set[InvestigationId]:
        """Returns the investigations with a stored test in a folder, without those of `misfits`.

        Investigations whose test is damaged are included: it is repeated only if the user asks for it.
        """
        return self.artifacts(folder) - self.misfits(folder).keys()

    def summary(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns a summary of an investigation, with its answer, its end, counts and costs.

        `openmaia.runs.summary.summary` explains the keys. Returns None if the investigation is not finished or its
        record is damaged, or is that of another investigation.
        """
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
        """Writes a Parquet file with a result about an investigation to a folder, such as `evaluation` or `bias`."""
        self.files.write(f"{folder}/{investigation.path}.parquet", data)

    def artifact(self, folder: str, investigation: InvestigationId) -> bytes | None:
        """Returns the content of the Parquet file that `write_artifact` wrote, or None if there is no such file."""
        return self.files.read(f"{folder}/{investigation.path}.parquet")

    def artifact_path(self, folder: str, investigation: InvestigationId) -> str:
        """Returns the full path of the file that `write_artifact` writes, for messages."""
        return self.files.path(f"{folder}/{investigation.path}.parquet")

    def artifacts(self, folder: str) -> set[InvestigationId]:
        """Returns the investigations for which `write_artifact` has written a file to a folder."""
        return set(InvestigationId.of_paths(self.files.names(folder)))

    def delete_artifact(self, folder: str, investigation: InvestigationId) -> None:
        """Deletes the file that `write_artifact` wrote, if it exists."""
        self.files.delete(f"{folder}/{investigation.path}.parquet")

    def evaluated(self) -> set[InvestigationId]:
        """Returns the investigations whose descriptions were evaluated (tested with new images).

        An evaluation of another description than that of the record does not count.
        """
        return self.belonging(EVALUATION)

    def evaluation(self, investigation: InvestigationId) -> bytes | None:
        """Returns the content of the file with the evaluation of a description; None if there is no such file.

        Raises:
            StoreError: It is damaged, or is the evaluation of another description than that of the record.
        """
        data = self.artifact(EVALUATION, investigation)
        if data is not None and (
            reason := self.misfit(EVALUATION, investigation, self._header(EVALUATION, investigation))
        ):
            raise StoreError(f"{self.artifact_path(EVALUATION, investigation)}: {reason}")
        return data

    def stored_score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores of an investigation's description from its evaluation, by name, without the p-values.

        `openmaia.evaluation.scores.Evaluation` explains the scores. Returns None if the investigation is not evaluated,
        or if its evaluation is damaged or one of another description.
        """
        header = self.evaluation_headers([investigation]).get(investigation)
        return None if header is None else cast(dict[str, Any], header["scores"])

    def evaluation_headers(self, investigations: Iterable[InvestigationId]) -> dict[InvestigationId, tables.TableRow]:
        """Returns the headers of evaluations, without those for which `stored_score` returns None."""
        identity = cache(self.identity)  # or each evaluation would read the config again
        found: dict[InvestigationId, tables.TableRow] = {}
        for each in investigations:
            try:
                name = f"{EVALUATION}/{each.path}.parquet"
                header = tables.header(self.files, name) if self.files.exists(name) else {}
            except StoreError:
                continue
            scores: Any = header.get("scores")
            is_readable = isinstance(scores, dict) and wrong_score(cast(dict[str, Any], scores)) is None
            if is_readable and not self._misfit(EVALUATION, each, header, identity):
                found[each] = header
        return found

    def score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores and p-values of an investigation's description, by name (see `scores`).

        Returns None if the investigation is not evaluated, or if its evaluation is damaged.
        """
        return self.scores([investigation]).get(investigation)

    def scores(self, investigations: Iterable[InvestigationId] | None = None) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the scores and p-values of evaluated descriptions, by investigation.

        To be fast, it reads only the footers of the evaluation files.

        Args:
            investigations: The investigations; None for all. Those without an evaluation, or with a damaged one, or
                with that of another description, are left out.

        Returns:
            The stored scores of each evaluation, together with `p`, `q` and `null` of `significance`. They
            are missing until all tests of the run are scored. They count for the evaluation they were computed from.
        """
        chosen = sorted(self.artifacts(EVALUATION)) if investigations is None else list(investigations)
        significance = self.significance()
        found: dict[InvestigationId, dict[str, Any]] = {}
        for each, header in self.evaluation_headers(chosen).items():
            p = significance.get((each, fingerprint(header)), {}) if significance else {}
            found[each] = cast(dict[str, Any], header["scores"]) | p
        return found

    def significance(self) -> dict[tuple[InvestigationId, str], dict[str, Any]]:
        """Returns the p-values of all tested descriptions.

        The keys are the investigation, and the `fingerprint` of the evaluation from which the values were computed.
        Each value is a dict. `p` is the p-value of the permutation test, `q` is `p` adjusted for the false discovery
        rate, and `null` is the number of values in the null distribution of the layer. The result is empty before the
        run is evaluated, or if the file of p-values is damaged.
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
    """Returns a digest of all that the test of a description depends on.

    A stored test holds the digest. If it differs from that of the record beside it, the test is one of another
    description, of another unit or with another config, and does not count.

    Args:
        row: The answer of an investigation, and what it drew: the keys in ANSWER of a result of `summary`.
        identity: The result of `RunResults.identity`.
    """
    answer = [row[key] for key in ANSWER]
    return hashlib.sha256(dumps([answer, identity]).encode(errors="surrogatepass")).hexdigest()[:32]


def fingerprint(header: tables.TableRow) -> str:
    """Returns a digest of the header of an evaluation, which holds what was tested and all scores."""
    return hashlib.sha256(dumps(header).encode(errors="surrogatepass")).hexdigest()[:32]


def record_name(investigation: InvestigationId) -> str:
    """Returns the name of the file with an investigation's record, relative to the run directory."""
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
    """Returns the content of a config.yaml as it is written. Raises ValueError if it holds no keys and values."""
    loaded: Any = parse_yaml(data)
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[Any, Any], loaded)):
        raise ValueError("it holds no keys and values")
    return cast(dict[str, Any], loaded)


@lru_cache(maxsize=64)
def _identity(data: bytes, without: tuple[str, ...]) -> str:
    values = defining_values(_config(data), (*EXTENSIBLE, *without))
    return hashlib.sha256(dumps(values, default=str).encode(errors="surrogatepass")).hexdigest()
