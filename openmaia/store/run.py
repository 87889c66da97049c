"""The run directory: one config, many records, and what is still owed."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import pyarrow as pa
import yaml

from openmaia.config import differing_keys, to_dict, to_yaml
from openmaia.errors import StoreError, UsageError
from openmaia.schema import POOLS, Config
from openmaia.store import tables
from openmaia.store.files import Files, safe, unsafe
from openmaia.store.journal import FolderJournal
from openmaia.store.lease import Lease, is_held, take
from openmaia.store.parquet import read_record, write_record
from openmaia.store.records import VERSION, Record, dumps
from openmaia.units import Unit

_SUMMARY = pa.schema(
    [
        ("target", pa.string()),
        ("layer", pa.string()),
        ("index", pa.int64()),
        ("replicate", pa.int64()),
        ("stop", pa.string()),
        ("cause", pa.string()),
        ("turns", pa.int64()),
        ("messages", pa.int64()),
        ("converged", pa.int64()),
        ("tools", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("description", pa.string()),
        ("seconds", pa.float64()),
        ("tokens", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("generated_tokens", pa.int64()),
        *[
            (f"{service}_{what}", kind)
            for service in POOLS
            for what, kind in (("requests", pa.int64()), ("seconds", pa.float64()), ("gpu_seconds", pa.float64()))
        ],
        ("backbone", pa.string()),
        ("sandbox", pa.string()),
        ("evidence", pa.string()),
        ("confirm_auc", pa.float64()),
        ("outcome", pa.string()),
        ("positive", pa.float64()),
        ("neutral", pa.float64()),
        ("auc", pa.float64()),
        ("auc_other", pa.float64()),
        ("auc_worst", pa.float64()),
        ("auc_unrelated", pa.float64()),
        ("auc_random", pa.float64()),
        ("auc_against", pa.float64()),
        ("difference", pa.float64()),
        ("z_difference", pa.float64()),
        ("d", pa.float64()),
        ("mad", pa.float64()),
        ("p", pa.float64()),
        ("rank", pa.float64()),
        ("top1", pa.float64()),
        ("top5", pa.float64()),
        ("shown", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owed:
    """One investigation: a unit, and which of its replicates."""

    unit: Unit
    replicate: int


@dataclass(frozen=True, slots=True)
class Run:
    files: Files

    @classmethod
    def create(cls, config: Config) -> "Run":
        """The run's directory, new or resumed.

        Raises UsageError where it cannot be written, or where something was recorded under another config (naming the
        keys that differ).
        """
        run = cls(Files(f"{config.paths.runs}/{config.name}"))
        run.files.create()
        before = run.files.read("config.yaml")
        if before is not None and run.begun():
            changed = differing_keys(run.config(), to_dict(config))
            if changed:
                raise UsageError(
                    f"{run.files.root} holds a run of another config: {', '.join(changed)} differ. "
                    "Give the run another name (name=…), or take back the change"
                )
        elif before is not None:
            run.files.delete("plan.json")
        run.files.write("config.yaml", to_yaml(config).encode())
        return run

    @classmethod
    def open(cls, path: str) -> "Run":
        run = cls(Files(path))
        if run.files.read("config.yaml") is None:
            raise UsageError(f"{path} is not a run directory: it has no config.yaml; give for example runs/demo")
        return run

    @property
    def name(self) -> str:
        return self.files.root.rstrip("/").rsplit("/", 1)[-1]

    def config(self) -> dict[str, Any]:
        try:
            loaded: Any = yaml.safe_load(self.files.read("config.yaml") or b"")
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: {' '.join(str(error).split())}") from error
        if not isinstance(loaded, dict):
            raise StoreError(f"{self.files.path('config.yaml')} is damaged: it holds no keys and values")
        return cast(dict[str, Any], loaded)

    def begun(self) -> bool:
        """Whether anything was recorded; until then a run may still change its config."""
        return any(self.files.names(folder) for folder in ("records", "journal", "failures"))

    # -- the plan ----------------------------------------------------------------------------------------------------

    def set_plan(self, units: Sequence[Unit], replicates: int) -> None:
        groups = [
            [target, layer, replicate, [unit.index for unit in members]]
            for replicate in range(replicates)
            for (target, layer), members in groupby(units, lambda unit: (unit.target, unit.layer))
        ]
        self.files.write("plan.json", dumps(groups).encode())

    def plan(self) -> list[Owed]:
        """Everything the run was asked for, finished or not."""
        return [
            Owed(unit=Unit(target=target, layer=layer, index=index), replicate=replicate)
            for target, layer, replicate, indices in self._plan()
            for index in indices
        ]

    def planned(self) -> int:
        """How many investigations the run was asked for."""
        return sum(len(indices) for *_, indices in self._plan())

    def to_do(self) -> Iterator[Owed]:
        """What is owed, in the order of the plan, found out layer by layer: a run of any size needs the memory of one
        layer's names."""
        for target, layer, replicate, indices in self._plan():
            done = set(self.files.names(f"records/{safe(target)}/{safe(layer)}"))
            for index in indices:
                owed = Owed(unit=Unit(target=target, layer=layer, index=index), replicate=replicate)
                if f"records/{_name(owed)}.parquet" not in done:
                    yield owed

    def owed(self) -> list[Owed]:
        return list(self.to_do())

    def _plan(self) -> list[tuple[str, str, int, list[int]]]:
        """(target, layer, replicate, indices), in order."""
        plan: list[Any] = self.files.read_json("plan.json") or []
        return [(t, y, r, indices) for t, y, r, indices in plan]

    def done(self) -> set[Owed]:
        return {_parse(name) for name in self.files.names("records")}

    def is_done(self, owed: Owed) -> bool:
        return self.files.exists(f"records/{_name(owed)}.parquet")

    def turns_begun(self) -> Counter[Owed]:
        """How many completed turns the journal holds of what is not finished."""
        return Counter(_parse(name.rsplit("/", 1)[0] + ".") for name in self.files.names("journal"))

    def running(self) -> set[Owed]:
        """Begun, and neither finished nor failed."""
        return {owed for owed in self.turns_begun() if not self.is_done(owed)} - self.failed()

    # -- records -----------------------------------------------------------------------------------------------------

    def publish(self, record: Record) -> None:
        """The record becomes visible whole; only then are its journal and an earlier failure forgotten."""
        owed = Owed(unit=record.unit, replicate=record.replicate)
        self.files.write(f"records/{_name(owed)}.parquet", write_record(record))
        self.files.delete(f"failures/{_name(owed)}.json")
        with suppress(OSError):  # what a file system does not let go is in nobody's way: the unit is done
            self.journal(owed).clear()

    def record(self, owed: Owed) -> Record:
        data = self.files.read(f"records/{_name(owed)}.parquet")
        if data is None:
            raise UsageError(f"{self.files.root} has no record of {owed.unit} (replicate {owed.replicate})")
        return read_record(data)

    def record_path(self, owed: Owed) -> str:
        return self.files.path(f"records/{_name(owed)}.parquet")

    def headers(self) -> list[dict[str, Any]]:
        """Summaries of all finished investigations, from the files' footers alone."""
        return list(self._headers())

    def _headers(self) -> Iterator[dict[str, Any]]:
        for name in self.files.names("records"):
            yield tables.header(self.files, name)["summary"]

    def summary(self, owed: Owed) -> dict[str, Any] | None:
        """Of one investigation, None while it is not finished."""
        name = f"records/{_name(owed)}.parquet"
        return tables.header(self.files, name)["summary"] if self.is_done(owed) else None

    def journal(self, owed: Owed) -> FolderJournal:
        return FolderJournal(self.files, f"journal/{_name(owed)}")

    def fail(self, owed: Owed, cause: str) -> None:
        failure = {"cause": cause, "time": time.time()}
        self.files.write(f"failures/{_name(owed)}.json", dumps(failure).encode())

    def failed(self) -> set[Owed]:
        """A unit with a record is none of them: a process that was cut off and given up may write last."""
        return {owed for owed in map(_parse, self.files.names("failures")) if not self.is_done(owed)}

    def failures(self) -> dict[Owed, str]:
        """Why each failed unit failed."""
        found = {owed: self.files.read_json(f"failures/{_name(owed)}.json") for owed in sorted(self.failed())}
        return {owed: failure["cause"] for owed, failure in found.items() if failure is not None}

    def write_summary(self) -> None:
        """summary.parquet, derived from the records and evaluations, a row at a time."""
        with self.files.writing("summary.parquet") as stream:
            tables.stream(stream, self._summary_rows(), _SUMMARY, {"version": VERSION})

    def _summary_rows(self) -> Iterator[dict[str, Any]]:
        for row in self._headers():
            unit = Unit(target=row["target"], layer=row["layer"], index=row["index"])
            scores = self.score(Owed(unit=unit, replicate=row["replicate"]))
            yield row | {"tools": dumps(row["tools"])} | _flat(row["spent"]) | (scores or {})

    def write_evaluation(self, owed: Owed, data: bytes) -> None:
        self.files.write(f"evaluation/{_name(owed)}.parquet", data)

    def evaluation(self, owed: Owed) -> bytes | None:
        return self.files.read(f"evaluation/{_name(owed)}.parquet")

    def write_trial(self, owed: Owed, data: bytes) -> None:
        """A trial is kept until it is scored: its evaluation holds it then."""
        self.files.write(f"trials/{_name(owed)}.parquet", data)

    def trial(self, owed: Owed) -> bytes | None:
        return self.files.read(f"trials/{_name(owed)}.parquet")

    def tried(self) -> set[Owed]:
        return {_parse(name) for name in self.files.names("trials")}

    def delete_trial(self, owed: Owed) -> None:
        self.files.delete(f"trials/{_name(owed)}.parquet")

    def evaluated(self) -> set[Owed]:
        return {_parse(name) for name in self.files.names("evaluation")}

    def score(self, owed: Owed) -> dict[str, Any] | None:
        """The statistics of one evaluation, None while there is none."""
        name = f"evaluation/{_name(owed)}.parquet"
        return tables.header(self.files, name)["scores"] if self.files.exists(name) else None

    def scores(self) -> dict[Owed, dict[str, Any]]:
        """The statistics of each evaluation, from the files' footers."""
        names = self.files.names("evaluation")
        return {_parse(name): tables.header(self.files, name)["scores"] for name in names}

    # -- what applications keep beside the records -------------------------------------------------------------------

    def write_beside(self, folder: str, owed: Owed, data: bytes) -> None:
        """folder: of the application, such as `bias`."""
        self.files.write(f"{folder}/{_name(owed)}.parquet", data)

    def beside(self, folder: str, owed: Owed) -> bytes | None:
        return self.files.read(f"{folder}/{_name(owed)}.parquet")

    def all_beside(self, folder: str) -> set[Owed]:
        return {_parse(name) for name in self.files.names(folder)}

    # -- one driver per run ------------------------------------------------------------------------------------------

    def take_lease(self) -> Lease:
        """Raises UsageError while another driver is alive."""
        return take(self.files)

    def is_driven(self) -> bool:
        return is_held(self.files)


def _flat(spent: dict[str, dict[str, float]]) -> dict[str, float]:
    """A column for each service and what it spent; 0 where it did nothing."""
    names = ("requests", "seconds", "gpu_seconds")
    return {f"{service}_{name}": spent.get(service, {}).get(name, 0) for service in POOLS for name in names}


def _name(owed: Owed) -> str:
    return f"{safe(owed.unit.target)}/{safe(owed.unit.layer)}/{owed.unit.index}-{owed.replicate}"


def _parse(name: str) -> Owed:
    match = re.fullmatch(r"[^/]+/([^/]+)/([^/]+)/(-?\d+)-(\d+)\.\w*", name)
    if not match:
        raise StoreError(f"{name} does not belong into a run directory; remove it")
    target, layer, index, replicate = match.groups()
    unit = Unit(target=unsafe(target), layer=unsafe(layer), index=int(index))
    return Owed(unit=unit, replicate=int(replicate))
