"""The results of a run that depend on its investigations: evaluations and other tests of the descriptions."""

from dataclasses import dataclass
from typing import Any, cast

import yaml

from openmaia.core.errors import StoreError
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.ids import InvestigationId

EVALUATION, TRIALS = "evaluation", "trials"
"""Folders of evaluations, and of trials: the measurements of an evaluation before they are scored."""
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
        """The directory that holds plan, records, journals and failures. It is another one for a further evaluation."""
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

    def score(self, investigation: InvestigationId) -> dict[str, Any] | None:
        """Returns the statistics of the evaluation of an investigation, or None if there is none."""
        name = f"{EVALUATION}/{investigation.path}.parquet"
        return tables.header(self.files, name)["scores"] if self.files.exists(name) else None

    def scores(self) -> dict[InvestigationId, dict[str, Any]]:
        """Returns the statistics of all evaluations by investigation. Only the footers of the files are read."""
        names = self.files.names(EVALUATION)
        return {InvestigationId.of_path(name): tables.header(self.files, name)["scores"] for name in names}


def _last(files: Files) -> str:
    return files.root.rstrip("/").rsplit("/", 1)[-1]
