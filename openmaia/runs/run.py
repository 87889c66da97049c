"""The run directory: a config, the plan of investigations, and their records, journals, failures and evaluations."""

import shlex
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count, groupby
from typing import Any, cast

from filelock import FileLock

from openmaia.config.loading import differing_keys, to_dict, to_yaml
from openmaia.config.schema import Config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.units import Unit
from openmaia.runs import summary, tables
from openmaia.runs.files import Files, naming, safe
from openmaia.runs.ids import InvestigationId
from openmaia.runs.journal import FolderJournal
from openmaia.runs.lease import is_held
from openmaia.runs.parquet import check_record, drawn_prompts, read_record, write_record
from openmaia.runs.records import VERSION, Record, dumps
from openmaia.runs.results import EVALUATION, EVALUATIONS, EXTENSIBLE, RANDOM_WORDS, TRIALS, RunResults, record_name

SUMMARY = "summary.parquet"
"""A table of all finished investigations of a run. It is absent while a command works on the run."""
TESTED = (EVALUATION, TRIALS, RANDOM_WORDS, "bias")
"""Folders of a run with tests of its descriptions, which depend on the section `evaluate` of the config."""


@dataclass(frozen=True, slots=True)
class Run(RunResults):
    """A run directory, local or on an object store.

    A run consists of investigations. An investigation is the work of the agent on one unit. A unit can have several
    investigations, its replicates. The plan lists all investigations. A record holds everything that happened in one
    finished investigation. A journal holds the completed turns of a running investigation.
    """

    @classmethod
    def of(cls, config: Config) -> "Run":
        """Returns the run of a config, whose directory is `config.name` in `config.paths.runs`. It need not exist."""
        return cls(Files(config.paths.runs).inside(config.name).confined())

    @classmethod
    def create(cls, config: Config) -> "Run":
        """Creates the run directory `config.name` in `config.paths.runs`, or opens it to resume the run.

        If the directory exists, its config may differ from `config` only in these keys:

        - keys that say where and with how many processes the run is executed, and keys that add investigations
          (EXTENSIBLE): always;
        - keys of the section `evaluate`: until the first description has been tested;
        - all other keys: until the first turn has been completed.

        If keys of the last two kinds differ, the stored failures of investigations are deleted.

        Raises:
            UsageError: The directory cannot be written, another command works on it with another config, or it holds
                results of another config. The message names the keys that differ.
        """
        run = cls.of(config)
        run.files.create()
        changed: list[str] = []
        if run.files.read("config.yaml") is not None:
            changed = differing_keys(run.config(), to_dict(config))
        if changed:
            run._change(changed)
        run.files.write("config.yaml", to_yaml(config).encode())
        return run

    @classmethod
    def open(cls, path: str) -> "Run":
        """Opens an existing run directory, or the folder of an additional evaluation of a run.

        Args:
            path: The run directory RUN, or RUN/evaluations/NAME for the additional evaluation with this name.

        Raises:
            UsageError: The folder is not a run directory.
        """
        files = Files(path).confined()
        if files.read("config.yaml") is None:
            raise UsageError(f"{path} is not a run directory: it has no config.yaml; give for example runs/demo")
        folder = files.path("").rsplit("/", 2)[1:-1]
        outer = files.above(2) if folder == [EVALUATIONS] else None
        return cls(files, outer if outer is not None and outer.exists("config.yaml") else None)

    def _change(self, keys: Sequence[str]) -> None:
        """Prepares the directory for a config that differs in these keys. Raises UsageError if they may not differ."""
        if self.is_driven(wait=True):
            raise UsageError(
                f"{self.files.root} is being driven by another command, with another config: {', '.join(keys)} differ. "
                "Wait for it or stop it, or give this run another name (name=…)"
            )
        refused = [key for key in keys if key not in EXTENSIBLE]
        science = [key for key in refused if not key.startswith("evaluate.")]
        if science and any(self.files.names(folder) for folder in ("records", "journal")):
            raise UsageError(
                f"{self.files.root} holds a run of another config: {', '.join(science)} differ. "
                "Give the run another name (name=…), or undo the change"
            )
        if refused and any(self.files.names(folder) for folder in TESTED):
            raise UsageError(
                f"{self.files.root} was evaluated with another config: {', '.join(refused)} differ. Undo the change, or "
                "keep a second evaluation beside the first: "
                f"openmaia evaluate {shlex.quote(self.files.root)} {refused[0]}=… --as NAME"
            )
        if refused:
            self.files.delete_folder("failures")
        self.files.delete("plan.json")

    # -- the plan ----------------------------------------------------------------------------------------------------

    def set_plan(self, units: Sequence[Unit], replicates: int) -> None:
        """Saves the plan of the run: `replicates` investigations of each unit, ordered by replicate.

        Raises:
            UsageError: The plan leaves out investigations that have begun. A plan can only be extended.
        """
        groups = [
            (target, layer, replicate, [unit.index for unit in members])
            for replicate in range(replicates)
            for (target, layer), members in groupby(units, lambda unit: (unit.target, unit.layer))
        ]
        with suppress(StoreError):  # a damaged plan is written again
            if self._plan() == groups:
                return
        planned = {each for group in groups for each in _members(*group)}
        if missing := sorted((self.done() | self.running()) - planned):
            raise UsageError(
                f"{self.investigations.root} holds {len(missing)} investigations that this config leaves out, such as "
                f"{missing[0].unit}: units can be added to a run, but not taken away. Name them again, or give the run "
                "another name (name=…)"
            )
        self.investigations.write("plan.json", dumps(groups).encode())
        for dropped in self.failed() - planned:
            self.investigations.delete(f"failures/{dropped.path}.json")
            self.journal(dropped).clear()

    def plan(self) -> list[InvestigationId]:
        """Returns the planned investigations, finished or not, in the order in which they are started.

        Empty if there is no plan.
        """
        return [investigation for group in self._plan() for investigation in _members(*group)]

    def planned(self) -> int:
        """Returns the number of planned investigations, finished or not."""
        return sum(len(indices) for *_, indices in self._plan())

    def iter_pending(self) -> Iterator[InvestigationId]:
        """Yields the planned investigations that are not finished (have no record), in the order of the plan.

        Records are listed one layer at a time, so that the memory does not grow with the run.
        """
        for group in self._plan():
            done = set(self.investigations.names(f"records/{safe(group[0])}/{safe(group[1])}"))
            yield from (each for each in _members(*group) if record_name(each) not in done)

    def pending(self) -> list[InvestigationId]:
        """Returns the planned investigations that are not finished (have no record), in the order of the plan."""
        return list(self.iter_pending())

    def _plan(self) -> list[tuple[str, str, int, list[int]]]:
        """Returns the plan as groups of investigations: (target, layer, replicate, indices of the units).

        Raises StoreError if it is damaged.
        """
        remedy = "remove it; the command that began the run writes it again"
        plan: list[Any] = self.investigations.read_json("plan.json", remedy) or []
        try:
            groups = [(target, layer, replicate, indices) for target, layer, replicate, indices in plan]
            is_valid = all(map(_is_group, groups))
        except (TypeError, ValueError):
            groups, is_valid = [], False
        if not is_valid:
            path = self.investigations.path("plan.json")
            raise StoreError(f"{path} is damaged: it holds no plan of investigations; {remedy}")
        return groups

    # -- records -----------------------------------------------------------------------------------------------------

    def publish(self, record: Record) -> None:
        """Writes the record of a finished investigation.

        Its journal (the turns stored so far) and the message of an earlier failure are deleted afterwards.
        """
        investigation = InvestigationId(unit=record.unit, replicate=record.replicate)
        self.investigations.write(record_name(investigation), write_record(record))
        self.investigations.delete(f"failures/{investigation.path}.json")
        with suppress(OSError):  # a journal that cannot be deleted does no harm, because the record counts
            self.journal(investigation).clear()

    def add(self, record: Record) -> InvestigationId:
        """Adds the record of an investigation to the run, as a new replicate of its unit. No record is replaced.

        The investigation is added to the run's plan, as are other finished investigations that the plan lacks.

        Returns:
            The id under which the record was added.
        """
        with self._adding():
            done = self.done()
            taken = {each.replicate for each in done if each.unit == record.unit}
            replicate = next(number for number in count() if number not in taken)
            added = InvestigationId(unit=record.unit, replicate=replicate)
            members = sorted({*self.plan(), *done, added}, key=lambda each: (each.replicate, each.unit))
            groups = groupby(members, lambda each: (each.unit.target, each.unit.layer, each.replicate))
            plan = [(*group, [each.unit.index for each in some]) for group, some in groups]
            self.publish(replace(record, replicate=replicate))
            self.investigations.write("plan.json", dumps(plan).encode())
        return added

    @contextmanager
    def _adding(self) -> Generator[None]:
        """Context manager that keeps other processes of this machine from adding a record at the same time."""
        path = self.investigations.lock_file(".adding.lock")
        with FileLock(path) if path else nullcontext():
            yield

    def record(self, investigation: InvestigationId) -> Record:
        """Reads the record of an investigation. Raises UsageError if there is none, and StoreError if it is damaged."""
        with naming(self.record_path(investigation)):
            record = read_record(self._record_file(investigation))
            if (record.unit, record.replicate) != (investigation.unit, investigation.replicate):
                raise StoreError(f"it is the record of {record.unit} (replicate {record.replicate})")
            return record

    def _record_file(self, investigation: InvestigationId) -> bytes:
        data = self.investigations.read(record_name(investigation))
        if data is None:
            raise UsageError(
                f"{self.investigations.root} has no record of {investigation.unit} (replicate {investigation.replicate})"
            )
        return data

    def drawn_prompts(self, investigation: InvestigationId) -> list[str]:
        """Returns the texts that a finished investigation sent to models that generate, edit or describe images.

        The prompts of images that tested the answer of the agent come last. No images are loaded. See
        `openmaia.runs.parquet.drawn_prompts` for the form of the texts.

        Raises:
            UsageError: There is no record.
            StoreError: The record is damaged.
        """
        with naming(self.record_path(investigation)):
            return drawn_prompts(self._record_file(investigation))

    def records(self, investigations: Iterable[InvestigationId] | None = None) -> Iterator[Record]:
        """Reads the records of the given investigations, or all records sorted by investigation, one at a time.

        Damaged records are left out. Raises UsageError if an investigation has no record.
        """
        for investigation in sorted(self.done()) if investigations is None else investigations:
            with suppress(StoreError):
                yield self.record(investigation)

    def record_path(self, investigation: InvestigationId) -> str:
        """Returns the full path of an investigation's record, for messages."""
        return self.investigations.path(record_name(investigation))

    def done(self) -> set[InvestigationId]:
        """Returns the finished investigations, those with a record."""
        return self._found("records")

    def is_done(self, investigation: InvestigationId) -> bool:
        """Returns whether an investigation is finished, that is, has a record."""
        return self.investigations.exists(record_name(investigation))

    def headers(self) -> list[dict[str, Any]]:
        """Returns a summary of each finished investigation, with its answer, its end, counts and costs.

        `openmaia.runs.summary.summary` explains the keys. The summaries are read from the footers of the records, so
        that turns and images are not loaded. Damaged records, and those under the name of another investigation, are
        left out; `openmaia.evaluation.damage` lists them.
        """
        return list(self._headers())

    def _headers(self) -> Iterator[dict[str, Any]]:
        for name in self.investigations.names("records"):
            if investigation := InvestigationId.of_path(name):
                with suppress(StoreError):
                    yield check_record(tables.header(self.investigations, name), investigation)

    def write_summary(self, verdicts: Mapping[InvestigationId, dict[str, Any]] | None = None) -> None:
        """Writes summary.parquet, a table of all finished investigations, from the records and evaluations.

        Args:
            verdicts: Additional values for the rows of the table: for each investigation, a dict from column to value.
                `openmaia.evaluation.analysis.verdict.write_summary` passes the verdict on each description.
        """
        with self.files.writing(SUMMARY) as stream:
            tables.stream(stream, self._summary_rows(verdicts or {}), summary.SCHEMA, {"version": VERSION})

    def _summary_rows(self, verdicts: Mapping[InvestigationId, dict[str, Any]]) -> Iterator[tables.TableRow]:
        for row in self._headers():
            investigation = InvestigationId.of_row(row)
            yield summary.table_row(row, self.stored_score(investigation)) | verdicts.get(investigation, {})

    def _found(self, folder: str) -> set[InvestigationId]:
        return set(InvestigationId.of_paths(self.investigations.names(folder)))

    # -- investigations that are running or failed -------------------------------------------------------------------

    def journal(self, investigation: InvestigationId) -> FolderJournal:
        """Returns the journal of an investigation, which stores its completed turns.

        It is empty before the first turn is completed.
        """
        # The section `evaluate` may still change while investigations run: no agent sees it.
        identity = RunResults(self.investigations).identity("evaluate")
        owner = f"{investigation.unit} #{investigation.replicate} with {identity[:32]}"
        return FolderJournal(self.investigations, f"journal/{investigation.path}", owner)

    def turns_begun(self) -> Counter[InvestigationId]:
        """Counts the completed turns in the journal of each investigation. Those without a journal are left out."""
        return Counter(
            InvestigationId.of_paths(name.rsplit("/", 1)[0] for name in self.investigations.names("journal"))
        )

    def running(self) -> set[InvestigationId]:
        """Returns the investigations that have completed a turn and have neither finished nor failed.

        This includes interrupted investigations, although no process works on them.
        """
        return {each for each in self.turns_begun() if not self.is_done(each)} - self.failed()

    def fail(self, investigation: InvestigationId, cause: str) -> None:
        """Stores that an investigation failed. It remains pending, so that the next command repeats it.

        Args:
            investigation: The investigation.
            cause: The error message.
        """
        named = {**asdict(investigation.unit), "replicate": investigation.replicate}
        failure = {**named, "cause": cause, "time": time.time()}
        # A message may hold a lone surrogate, which has no UTF-8.
        self.investigations.write(f"failures/{investigation.path}.json", dumps(failure).encode(errors="replace"))

    def failed(self) -> set[InvestigationId]:
        """Returns the failed investigations that have no record.

        Those with a record do not count, because a process that was believed dead may report a failure after another
        process has finished the investigation.
        """
        return {each for each in self._found("failures") if not self.is_done(each)}

    def failures(self) -> dict[InvestigationId, str]:
        """Returns the error messages of the failed investigations, sorted by investigation."""
        causes = {each: self._cause(each) for each in sorted(self.failed())}
        return {each: cause for each, cause in causes.items() if cause is not None}

    def _cause(self, investigation: InvestigationId) -> str | None:
        """Returns the error message of a failure. None if the failure was deleted in the meantime."""
        try:
            failure = self.investigations.read_json(f"failures/{investigation.path}.json")
            if failure is None:
                return None
            found = InvestigationId.of_row(failure)
            if found != investigation:
                raise StoreError(f"the failure of {found.unit} (replicate {found.replicate}) under the name of another")
            return str(failure["cause"])
        except (StoreError, KeyError, TypeError) as error:
            message = error.message if isinstance(error, StoreError) else "it names no unit or holds no cause"
            return f"its cause cannot be read: {message}"

    def is_driven(self, *, wait: bool = False) -> bool:
        """Returns whether a process executes the run, that is, holds its lease. `wait` is that of `is_held`."""
        return is_held(self.investigations, wait=wait)


def _is_group(group: tuple[Any, Any, Any, Any]) -> bool:
    """Returns whether values from plan.json are a target, a layer, a replicate and a list of indices of units."""
    target, layer, replicate, indices = group
    is_list = isinstance(indices, list) and all(isinstance(index, int) for index in cast("list[Any]", indices))
    return isinstance(target, str) and isinstance(layer, str) and isinstance(replicate, int) and is_list


def _members(target: str, layer: str, replicate: int, indices: Sequence[int]) -> Iterator[InvestigationId]:
    for index in indices:
        yield InvestigationId(unit=Unit(target=target, layer=layer, index=index), replicate=replicate)
