"""The run directory: a config, the plan, and records, journals, failures and evaluations of investigations."""

import shlex
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count, groupby
from typing import Any, cast

import pyarrow as pa
from filelock import FileLock

from openmaia.config.loading import differing_keys, to_dict, to_yaml
from openmaia.config.schema import Config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.units import TargetInfo, Unit
from openmaia.runs import summary, tables
from openmaia.runs.files import Files, naming, safe
from openmaia.runs.ids import InvestigationId
from openmaia.runs.journal import FolderJournal
from openmaia.runs.lease import is_held
from openmaia.runs.parquet import check_record, read_drawn_prompts, read_record, write_record
from openmaia.runs.records import RECORD_VERSION, Record, dumps
from openmaia.runs.results import EVALUATION, EVALUATIONS, EXTENSIBLE, RANDOM_WORDS, TRIALS, RunResults, record_name

SUMMARY = "summary.parquet"
"""It is absent while a command works on the run."""
_NETWORK = "network.json"

TEST_FOLDERS = (EVALUATION, TRIALS, RANDOM_WORDS, "bias")
"""Folders of a run with tests of its descriptions, which depend on the section `evaluate` of the config."""


@dataclass(frozen=True, slots=True)
class Run(RunResults):
    """A run directory, local or on an object store."""

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
        """Opens a run directory RUN, or that of a further evaluation, RUN/evaluations/NAME.

        Raises UsageError if the folder is none.
        """
        files = Files(path).confined()
        if files.read("config.yaml") is None:
            raise UsageError(f"{path} is not a run directory: it has no config.yaml; give for example runs/demo")
        folder = files.path("").rsplit("/", 2)[1:-1]
        outer = files.above(2) if folder == [EVALUATIONS] else None
        return cls(files, outer if outer is not None and outer.exists("config.yaml") else None)

    def _change(self, keys: Sequence[str]) -> None:
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
        if refused and any(self.files.names(folder) for folder in TEST_FOLDERS):
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
        """Saves the plan: `replicates` investigations of each unit, ordered by replicate.

        Raises UsageError if it leaves out investigations that have begun.
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

    def bind(self, info: TargetInfo) -> None:
        """Notes the digest of the network. Call before anything is measured for the run, or tested.

        Raises UsageError if records, or investigations that have begun, are of another network.
        """
        if not info.digest:
            return  # a target of a user need not have one
        with suppress(StoreError):  # a damaged note is written again
            noted: Any = self.investigations.read_json(_NETWORK)
            if noted == {"digest": info.digest}:
                return
            has_begun = any(self.investigations.names(folder) for folder in ("records", "journal"))
            if isinstance(noted, dict) and has_begun:
                raise UsageError(
                    f"{self.investigations.root} was measured with another network: the weights of {info.name} are not those noted in "
                    f"{self.investigations.path(_NETWORK)}. Restore them, or begin a run of another name. Remove that file only "
                    "if the note is wrong"
                )
        self.investigations.write(_NETWORK, dumps({"digest": info.digest}).encode())

    def plan(self) -> list[InvestigationId]:
        """Returns the planned investigations, finished or not, in the order in which they are started."""
        return [investigation for group in self._plan() for investigation in _members(*group)]

    def planned(self) -> int:
        """Returns the number of planned investigations, finished or not."""
        return sum(len(indices) for *_, indices in self._plan())

    def iter_pending(self) -> Iterator[InvestigationId]:
        """Yields the planned investigations without a record, in the order of the plan."""
        # Records are listed one layer at a time, so that the memory does not grow with the run.
        for group in self._plan():
            done = set(self.investigations.names(f"records/{safe(group[0])}/{safe(group[1])}"))
            yield from (each for each in _members(*group) if record_name(each) not in done)

    def pending(self) -> list[InvestigationId]:
        """Returns the planned investigations without a record, in the order of the plan."""
        return list(self.iter_pending())

    def _plan(self) -> list[tuple[str, str, int, list[int]]]:
        """Returns groups (target, layer, replicate, indices of units). Raises StoreError if the plan is damaged."""
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
        """Writes a record, and then deletes journal and failure of its investigation."""
        investigation = InvestigationId(unit=record.unit, replicate=record.replicate)
        self.investigations.write(record_name(investigation), write_record(record))
        self.investigations.delete(f"failures/{investigation.path}.json")
        with suppress(OSError):  # a journal that cannot be deleted does no harm, because the record counts
            self.journal(investigation).clear()

    def add(self, record: Record) -> InvestigationId:
        """Adds a record as a new replicate of its unit, and returns the id under which it was added: that of the record,
        or the next free one.

        Its investigation is added to the plan, as are other finished ones that the plan lacks.
        """
        with self._adding():
            done = self.done()
            taken = {each.replicate for each in done if each.unit == record.unit}
            replicate = next(number for number in count(record.replicate) if number not in taken)
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
        """Reads a record. Raises UsageError if there is none, and StoreError if it is damaged."""
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
        """Returns `openmaia.runs.parquet.read_drawn_prompts` of a record.

        Raises UsageError if there is none, and StoreError if it is damaged.
        """
        with naming(self.record_path(investigation)):
            return read_drawn_prompts(self._record_file(investigation))

    def records(self, investigations: Iterable[InvestigationId] | None = None) -> Iterator[Record]:
        """Reads records one at a time (None: all, sorted by investigation), without damaged ones.

        Raises UsageError if there is no record of an investigation.
        """
        for investigation in sorted(self.done()) if investigations is None else investigations:
            with suppress(StoreError):
                yield self.record(investigation)

    def record_path(self, investigation: InvestigationId) -> str:
        """Returns the full path of a record, for messages."""
        return self.investigations.path(record_name(investigation))

    def done(self) -> set[InvestigationId]:
        """Returns the investigations with a record."""
        return self._found("records")

    def is_done(self, investigation: InvestigationId) -> bool:
        """Returns whether an investigation has a record."""
        return self.investigations.exists(record_name(investigation))

    def headers(self) -> list[dict[str, Any]]:
        """Returns what `openmaia.runs.summary.summary` made of each record, from the footers of the files.

        Damaged and foreign records are left out; `openmaia.evaluation.damage` lists them.
        """
        found: list[dict[str, Any]] = []
        for name in self.investigations.names("records"):
            if investigation := InvestigationId.of_path(name):
                with suppress(StoreError):
                    found.append(check_record(tables.header(self.investigations, name), investigation))
        return found

    def write_summary(
        self,
        columns: Mapping[str, pa.DataType] | None = None,
        values: Mapping[InvestigationId, dict[str, Any]] | None = None,
    ) -> None:
        """Writes summary.parquet, a row for each record.

        Args:
            columns: The columns after those of the records.
            values: The values in `columns`, by name. Others are left out.
        """
        own = zip(summary.SCHEMA.names, summary.SCHEMA.types, strict=True)
        schema = pa.schema([*own, *(columns or {}).items()])
        with self.files.writing(SUMMARY) as stream:
            rows = (summary.table_row(row, (values or {}).get(InvestigationId.of_row(row))) for row in self.headers())
            tables.stream(stream, rows, schema, {"version": RECORD_VERSION})

    def _found(self, folder: str) -> set[InvestigationId]:
        return set(InvestigationId.of_paths(self.investigations.names(folder)))

    # -- investigations that are running or failed -------------------------------------------------------------------

    def journal(self, investigation: InvestigationId) -> FolderJournal:
        """Returns the journal of an investigation."""
        # The section `evaluate` may still change while investigations run: no agent sees it.
        identity = RunResults(self.investigations).identity("evaluate")
        owner = f"{investigation.unit} #{investigation.replicate} with {identity[:32]}"
        return FolderJournal(self.investigations, f"journal/{investigation.path}", owner)

    def turns_begun(self) -> Counter[InvestigationId]:
        """Returns the number of turns in each journal."""
        return Counter(
            InvestigationId.of_paths(name.rsplit("/", 1)[0] for name in self.investigations.names("journal"))
        )

    def turns_of(self, investigation: InvestigationId) -> int:
        """Returns the number of turns in the journal of an investigation."""
        return len(self.investigations.names(f"journal/{investigation.path}"))

    def running(self) -> set[InvestigationId]:
        """Returns the investigations that have completed a turn and have neither finished nor failed, also interrupted
        ones."""
        return {each for each in self.turns_begun() if not self.is_done(each)} - self.failed()

    def fail(self, investigation: InvestigationId, cause: str) -> None:
        """Stores that an investigation failed. It remains pending, so that the next command repeats it."""
        named = {**asdict(investigation.unit), "replicate": investigation.replicate}
        failure = {**named, "cause": cause, "time": time.time()}
        # A message may hold a lone surrogate, which has no UTF-8.
        self.investigations.write(f"failures/{investigation.path}.json", dumps(failure).encode(errors="replace"))

    def failed(self) -> set[InvestigationId]:
        """Returns the failed investigations that have no record.

        A process that was believed dead may report a failure after another process has finished the investigation.
        """
        return {each for each in self._found("failures") if not self.is_done(each)}

    def failures(self) -> dict[InvestigationId, str]:
        """Returns the error messages of `failed`, sorted by investigation."""
        causes = {each: self._cause(each) for each in sorted(self.failed())}
        return {each: cause for each, cause in causes.items() if cause is not None}

    def _cause(self, investigation: InvestigationId) -> str | None:
        try:
            failure = self.investigations.read_json(f"failures/{investigation.path}.json")
            if failure is None:
                return None  # It was deleted in the meantime.
            found = InvestigationId.of_row(failure)
            if found != investigation:
                raise StoreError(f"the failure of {found.unit} (replicate {found.replicate}) under the name of another")
            return str(failure["cause"])
        except (StoreError, KeyError, TypeError) as error:
            message = error.message if isinstance(error, StoreError) else "it names no unit or holds no cause"
            return f"its cause cannot be read: {message}"

    def is_driven(self, *, wait: bool = False) -> bool:
        """Returns whether a driver holds the lease of the run. `wait` is that of `is_held`."""
        return is_held(self.investigations, wait=wait)


def _is_group(group: tuple[Any, Any, Any, Any]) -> bool:
    target, layer, replicate, indices = group
    is_list = isinstance(indices, list) and all(isinstance(index, int) for index in cast("list[Any]", indices))
    return isinstance(target, str) and isinstance(layer, str) and isinstance(replicate, int) and is_list


def _members(target: str, layer: str, replicate: int, indices: Sequence[int]) -> Iterator[InvestigationId]:
    for index in indices:
        yield InvestigationId(unit=Unit(target=target, layer=layer, index=index), replicate=replicate)
