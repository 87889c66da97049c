"""The results of a run that depend on its investigations: evaluations and other tests of the descriptions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import yaml

from openmaia.core.errors import StoreError
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId

EVALUATION, TRIALS = "evaluation", "trials"
"""Folders of evaluations, and of trials: the measurements of an evaluation before they are scored."""
RANDOM_WORDS = "random_words"
"""Folder of the trials of random words, with which the descriptions of each layer are compared. The number of such a
description takes the place of the replicate in the names of its files."""
SIGNIFICANCE = "significance.parquet"
"""The p-values of all evaluated descriptions, which depend on each other."""
EVALUATIONS = "evaluations"
"""Folder of further evaluations: runs that test the descriptions of this one with another config."""


@dataclass(frozen=True, slots=True)
class RunResults:
    """The config of a run, and one file per investigation with the result of each kind of test.

    The directory RUN/evaluations/NAME has a config and results of its own, and the plan and the investigations of RUN.
    """

    files: Files
    """The files of the directory."""
    source: Files | None = None
    """The directory that holds plan and investigations. None: this one."""

    @property
    def investigations(self) -> Files:
        """The directory that holds plan, records, journals and failures. A further evaluation uses that of its run."""
        return self.source or self.files

    @property
    def name(self) -> str:
        """Name of the directory; for a further evaluation, with that of its run before it, such as `demo as n60`."""
        own = _last(self.files)
        return own if self.source is None else f"{_last(self.source)} as {own}"

    def config(self) -> dict[str, Any]:
        """Returns the resolved config. Raises StoreError if it is damaged."""
        try:
            loaded: Any = yaml.safe_load(self.files.read("config.yaml") or b"")
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: {' '.join(str(error).split())}") from error
        if not isinstance(loaded, dict):
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: it holds no keys and values")
        return cast(dict[str, Any], loaded)

    def write_artifact(self, folder: str, investigation: InvestigationId, data: bytes) -> None:
        """Writes a Parquet file with a result about an investigation to a folder, such as `evaluation` or `bias`."""
        self.files.write(f"{folder}/{investigation.path}.parquet", data)

    def artifact(self, folder: str, investigation: InvestigationId) -> bytes | None:
        """Returns the Parquet file that `write_artifact` wrote, or None if there is none."""
        return self.files.read(f"{folder}/{investigation.path}.parquet")

    def artifacts(self, folder: str) -> set[InvestigationId]:
        """Returns the investigations that have a result in a folder."""
        return {InvestigationId.of_path(name) for name in self.files.names(folder)}

    def delete_artifact(self, folder: str, investigation: InvestigationId) -> None:
        """Deletes the file that `write_artifact` wrote, if it exists."""
        self.files.delete(f"{folder}/{investigation.path}.parquet")

    def evaluated(self) -> set[InvestigationId]:
        """Returns the investigations with an evaluation."""
        return self.artifacts(EVALUATION)

    def stored_score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the scores in the evaluation of an investigation, without its significance. None if there is none or if
        it is damaged."""
        name = f"{EVALUATION}/{investigation.path}.parquet"
        try:
            return tables.header(self.files, name).get("scores") if self.files.exists(name) else None
        except StoreError:
            return None

    def score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the entry of an investigation in `scores`, or None if it is not evaluated."""
        return self.scores([investigation]).get(investigation)

    def scores(self, investigations: Iterable[InvestigationId] | None = None) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the statistics of evaluations by investigation. Only the footers of the files are read.

        Args:
            investigations: The investigations; None for all. Those without an evaluation, or with a damaged one, are left out.

        Returns:
            The stored scores of each evaluation, with the p-values `p` and `q` of `significance`. These are missing until
            all trials of the run are scored.
        """
        chosen = sorted(self.evaluated()) if investigations is None else list(investigations)
        significance = self.significance()
        stored = ((each, self.stored_score(each)) for each in chosen)
        return {each: scores | significance.get(each, {}) for each, scores in stored if scores is not None}

    def significance(self) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the p-value `p` and the adjusted p-value `q` of each tested description; empty before the evaluation."""
        data = self.files.read(SIGNIFICANCE)
        try:
            rows = [] if data is None else tables.load(data, self.files.path(SIGNIFICANCE))[0]
        except StoreError:
            return {}  # the next evaluation writes it again
        return {InvestigationId.of_row(row): {"p": row["p"], "q": row["q"]} for row in rows}


def _last(files: Files) -> str:
    return files.root.rstrip("/").rsplit("/", 1)[-1]
