"""The results of the tests of a run's descriptions, such as evaluations, with one file per investigation."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import yaml

from openmaia.config.loading import stored_values
from openmaia.core.errors import StoreError, UsageError
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId
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
            loaded: Any = yaml.safe_load(self.files.read("config.yaml") or b"")
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise StoreError(f"{path} is damaged: {' '.join(str(error).split())}") from error
        if not isinstance(loaded, dict):
            raise StoreError(f"{path} is damaged: it holds no keys and values")
        try:
            return stored_values(cast(dict[str, Any], loaded), "config.yaml")
        except UsageError as error:
            raise StoreError(f"{path} is damaged, or of another version of OpenMAIA: {error.message}") from error

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
        """Returns the investigations whose descriptions were evaluated (tested with new images)."""
        return self.artifacts(EVALUATION)

    def stored_score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores of an investigation's description from its evaluation, by name, without the p-values.

        `openmaia.evaluation.scores.Evaluation` explains the scores. Returns None if the investigation is not evaluated,
        or if its evaluation is damaged.
        """
        name = f"{EVALUATION}/{investigation.path}.parquet"
        try:
            scores = tables.header(self.files, name).get("scores") if self.files.exists(name) else None
        except StoreError:
            return None
        is_readable = isinstance(scores, dict) and wrong_score(cast(dict[str, Any], scores)) is None
        return cast(dict[str, Any], scores) if is_readable else None

    def score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores and p-values of an investigation's description, by name (see `scores`).

        Returns None if the investigation is not evaluated, or if its evaluation is damaged.
        """
        return self.scores([investigation]).get(investigation)

    def scores(self, investigations: Iterable[InvestigationId] | None = None) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the scores and p-values of evaluated descriptions, by investigation.

        To be fast, it reads only the footers of the evaluation files.

        Args:
            investigations: The investigations; None for all. Those without an evaluation, or with a damaged one, are left out.

        Returns:
            The stored scores of each evaluation, together with the p-values `p` and `q` of `significance`. The p-values
            are missing until all tests of the run are scored.
        """
        chosen = sorted(self.evaluated()) if investigations is None else list(investigations)
        significance = self.significance()
        stored = ((each, self.stored_score(each)) for each in chosen)
        return {each: scores | significance.get(each, {}) for each, scores in stored if scores is not None}

    def significance(self) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the p-values of all tested descriptions, by investigation.

        Each value is a dict. `p` is the p-value of the permutation test, and `q` is `p` adjusted for the false
        discovery rate. The result is empty before the run is evaluated, or if the file of p-values is damaged.
        """
        data = self.files.read(SIGNIFICANCE)
        try:
            rows = [] if data is None else tables.load(data, self.files.path(SIGNIFICANCE))[0]
        except StoreError:
            return {}  # the next evaluation writes it again
        return {InvestigationId.of_row(row): {"p": row["p"], "q": row["q"]} for row in rows}
