"""Files of others: a field of a wrong type costs its unit alone and is named, in every file and field."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from openmaia.cli.main import app
from openmaia.config.loading import load, to_dict
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.services import ServiceUsage
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.significance import supported_shares
from openmaia.evaluation.damage import damaged_files
from openmaia.evaluation.storage import read_trial
from openmaia.runs import tables
from openmaia.runs.evidence import (
    CheckState,
    Confirmation,
    ConfirmationSample,
    Evidence,
    EvidenceCheck,
    HypothesisEvidence,
)
from openmaia.runs.parquet import read_drawn_prompts, read_record, write_record
from openmaia.runs.records import Record
from openmaia.runs.results import SIGNIFICANCE, SIGNIFICANCE_SCHEMA
from openmaia.runs.run import EVALUATION, InvestigationId, Run
from tests.helpers.samples import UNIT, bound, noise, record, turn
from tests.reporting.making import evaluation

WRONG: list[Any] = [
    None,
    "x",
    7,
    -1,
    True,
    0.5,
    [],
    {},
    [[["x"]]],
    {"a": {"b": 1}},
    float("nan"),
    float("inf"),
    10**400,
]
"""Values of which at least most do not fit any one field."""


def everything(unit: Unit = UNIT, config: dict[str, Any] | None = None) -> Record:
    """A record in which every field of its header is in use."""
    image = noise(9)
    sample = {"label": "dog", "prompt": "a dog", "seed": 1, "digest": image.digest, "activation": 2.0}
    near = {"near_miss": "cat", "control": "drawn", "percentile": 50.0, "missing_terms": ("x",)}
    return record(
        unit,
        turns=(turn(0),),
        config=config or {"name": "x"},
        confirmation=Confirmation(
            samples=(ConfirmationSample(**sample), ConfirmationSample(**sample | near)),
            spent={"generator": ServiceUsage(requests=1, seconds=0.5, gpu_seconds=0.0)},
            images={image.digest: image},
        ),
        evidence=Evidence(
            checks=(EvidenceCheck(what="experiments", wanted=1, found=1, state=CheckState.MET),),
            tested=(HypothesisEvidence(hypothesis="dog", images=1, controls=1, mean=1.0, control_mean=None),),
        ),
    )


def places(value: Any, place: tuple[Any, ...] = (), depth: int = 6) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a document; of a list only the first item."""
    if place:
        yield place
    if depth and isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*place, key), depth - 1)
    elif depth and isinstance(value, list) and value:
        yield from places(value[0], (*place, 0), depth - 1)


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy of a document with another value at a place; Ellipsis removes it."""
    if not place:
        return new
    key, *rest = place
    if isinstance(value, dict):
        if not rest and new is ...:
            return {name: item for name, item in value.items() if name != key}
        return value | {key: changed(value[key], tuple(rest), new)}
    return value[1:] if not rest and new is ... else [changed(value[0], tuple(rest), new), *value[1:]]


def read(data: bytes) -> tuple[list[dict[str, Any]], dict[str, Any], pa.Schema]:
    rows, header = tables.load(data)
    return rows, header, pq.read_schema(pa.BufferReader(data)).remove_metadata()


# -- headers ---------------------------------------------------------------------------------------------------------------


RECORD = write_record(everything())
EVALUATED = evaluation(UNIT)


@pytest.mark.parametrize(("data", "reader"), [(RECORD, read_record), (EVALUATED, read_trial)], ids=["record", "test"])
def test_header_with_any_wrong_value_is_a_store_error_or_harmless(data: bytes, reader: Any):
    rows, header, schema = read(data)
    refused = set[tuple[Any, ...]]()
    for place in places(header):
        for new in (..., *WRONG):
            try:
                reader(tables.dump(rows[:1], schema, changed(header, place, new)))
            except StoreError:
                refused.add(place)
    free = {place for place in places(header) if place[0] in ("config", "detection", "compared")}
    assert {place for place in places(header) if place not in refused} <= free


# -- columns ---------------------------------------------------------------------------------------------------------------


def leaves(kind: pa.DataType, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The places of all columns and fields in a schema."""
    yield place
    if pa.types.is_list(kind):
        yield from leaves(kind.value_type, (*place, 0))
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(field.type, (*place, field.name))


def retyped(kind: pa.DataType, place: tuple[Any, ...], new: pa.DataType) -> pa.DataType:
    if not place:
        return new
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", retyped(kind.value_type, place[1:], new)))
    return pa.struct(
        [pa.field(f.name, retyped(f.type, place[1:], new) if f.name == place[0] else f.type) for f in kind]
    )


def emptied(value: Any, place: tuple[Any, ...]) -> Any:
    """The value with null at a place, which every type can hold."""
    if not place or value is None:
        return None
    if isinstance(value, list):
        return [emptied(item, place[1:]) for item in value]
    return value | {place[0]: emptied(value[place[0]], place[1:])}


SCHEMAS = {name: read(data)[2] for name, data in {"record": RECORD, "test": EVALUATED}.items()}
COLUMNS = [
    (name, place)
    for name, schema in SCHEMAS.items()
    for column in schema.names
    for place in leaves(schema.field(column).type, (column,))
]


@pytest.mark.parametrize(("name", "place"), COLUMNS, ids=lambda value: "-".join(map(str, value)))
def test_column_of_another_type_is_a_store_error(name: str, place: tuple[Any, ...]):
    rows, header, schema = read(RECORD if name == "record" else EVALUATED)
    column, *inner = place
    for new in (pa.string(), pa.int64(), pa.float32(), pa.list_(pa.int64()), pa.binary(), pa.bool_(), pa.null()):
        kind = retyped(schema.field(column).type, tuple(inner), new)
        if kind.equals(schema.field(column).type):
            continue
        other = schema.set(schema.get_field_index(column), pa.field(column, kind))
        data = tables.dump([row | {column: emptied(row[column], tuple(inner))} for row in rows], other, header)
        for reader in (read_record, read_drawn_prompts) if name == "record" else (read_trial,):
            with pytest.raises(StoreError, match=column):
                reader(data)


@pytest.mark.parametrize("name", ["record", "test"])
def test_missing_unknown_and_null_columns_are_store_errors(name: str):
    rows, header, schema = read(RECORD if name == "record" else EVALUATED)
    reader = read_record if name == "record" else read_trial
    whole = pa.Table.from_pylist(rows, schema=schema)
    for column in schema.names:
        with pytest.raises(StoreError, match=column):
            reader(
                tables.dump(whole.drop_columns([column]).to_pylist(), schema.remove(schema.names.index(column)), header)
            )
        nullable = schema.set(schema.names.index(column), schema.field(column).with_nullable(True))
        if not schema.field(column).nullable:
            with pytest.raises(StoreError, match=column):
                reader(tables.dump([row | {column: None} for row in rows], nullable, header))
    with pytest.raises(StoreError, match="more"):
        reader(tables.dump([row | {"more": 1} for row in rows], schema.append(pa.field("more", pa.int64())), header))


# -- a run of such files ---------------------------------------------------------------------------------------------------


def test_commands_show_the_other_units_of_a_run_with_a_wrong_value_in_every_header(tmp_path: Path):
    """Each unit has another fault. What is harmless is shown, what is not is named, and the last unit is whole."""
    config = load(["name=demo", "units=all", "target.name=net", "target.layers=[layer4]", f"paths.runs={tmp_path}"])
    run = Run.create(config)
    values = iter(WRONG * 1000)
    faults = [("records", place) for place in places(read(RECORD)[1], depth=3) if place[0] != "config"]
    faults += [(EVALUATION, place) for place in places(read(EVALUATED)[1], depth=2)]
    faults = faults[::2]
    units = [replace(UNIT, index=index) for index in range(len(faults) + 1)]
    run.set_plan(units, 1)
    whole = write_record(replace(everything(config=to_dict(config))))
    rows, header, schema = read(whole)
    for unit in units:
        own = changed(header, ("unit", "index"), unit.index)
        own = changed(own, ("summary", "index"), unit.index)
        run.files.write(
            f"records/{InvestigationId(unit=unit, replicate=0).path}.parquet", tables.dump(rows, schema, own)
        )
        tested = bound(run, InvestigationId(unit=unit, replicate=0), evaluation(replace(UNIT, index=0)))
        run.write_artifact(EVALUATION, InvestigationId(unit=unit, replicate=0), tested)
    for unit, (folder, place) in zip(units, faults, strict=False):
        name = f"{folder}/{InvestigationId(unit=unit, replicate=0).path}.parquet"
        stored, own, kinds = read(run.files.read(name) or b"")
        run.files.write(name, tables.dump(stored, kinds, changed(own, place, next(values))))
    for command in (["show", "--json"], ["report"]):
        result = CliRunner().invoke(app, [command[0], run.files.root, *command[1:]])
        if result.exception is not None:
            raise result.exception
        assert result.exit_code == 0, result.output
    last = InvestigationId(unit=units[-1], replicate=0)
    assert run.scores()[last]["outcome"] == "tested" and run.summary(last) is not None
    assert len(damaged_files(run)) > len(faults) / 2


# -- other files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(load(["name=demo", "units=all", "target.name=net", f"paths.runs={tmp_path}"]))
    made.set_plan([UNIT], 1)
    made.publish(record())
    return made


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
CONFIGS = {
    "aliases": BOMB,
    "merged aliases": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)),
    "an alias of itself": "a: &a [*a]",
    "nesting": "a: " + "[" * 100_000,
    "mappings in mappings": "{a: " * 5000,
    "not a mapping": "- 1",
    "numbers as keys": "1: 2",
    "a huge number": "seed: " + "9" * 5000,
    "no timestamp": "seed: !!timestamp 5",
    "an object": "seed: !!python/object/apply:os.getcwd []",
    "two documents": "seed: 1\n---\nseed: 2",
    "interpolation": "name: '${seed}${seed}'\nunits: all\ntarget: {name: '${name}${name}'}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_hostile_config_is_refused_at_once(run: Run, tmp_path: Path, text: str):
    Path(run.files.path("config.yaml")).write_text(text)
    for reading in (run.config, run.scores, lambda: run.journal(InvestigationId(unit=UNIT, replicate=0))):
        try:
            reading()
        except StoreError as error:
            assert "config.yaml is damaged" in error.message
    cause = "interpolation" if text == CONFIGS["interpolation"] else ""
    with pytest.raises(StoreError, match=f"config.yaml is damaged.*{cause}"):
        run.config()
    if text not in (CONFIGS["an object"], CONFIGS["interpolation"]):
        own = tmp_path / "own.yaml"
        own.write_text(text)
        # A library that another test imported (lm-format-enforcer) makes PyYAML read times as texts in the whole process.
        with pytest.raises(UsageError, match="" if "timestamp" in text else "own.yaml"):
            load([str(own)])


@pytest.mark.parametrize("key", ["config.yaml", "plan.json", "progress.json"])
def test_config_and_plan_with_any_wrong_value_cost_one_message(run: Run, key: str):
    document: Any = {"config.yaml": run.config(), "plan.json": [["net", "layer4", 0, [7]]], "progress.json": {
        "time": 1.0, "began": 1.0, "ended": 1, "running": [["net", "layer4", 7, 0, 1.0]]
    }}[key]  # fmt: skip
    for place in list(places(document, depth=3))[:: 60 if key == "config.yaml" else 1]:
        for new in ([], float("nan"), 10**400):
            run.files.write(key, json.dumps(changed(document, place, new)).encode())
            try:
                run.config(), run.plan(), run.scores()
            except (StoreError, UsageError) as error:
                assert key in error.message


def test_p_values_of_a_wrong_type_are_left_out(run: Run):
    row = {"target": "net", "layer": "layer4", "index": 7, "replicate": 0, "p": 0.01, "q": 0.01}
    row |= {"null": 100, "evaluation": "x"}
    for name in row:
        for new in (float("nan"), -1.0, 2.0, "x", [1.0], {"a": 1}):
            run.files.write(SIGNIFICANCE, tables.dump([row | {name: new}], None, {"supported": new, "stamp": new}))
            assert run.significance() == {} and supported_shares(run) == {}
    for new in (float("nan"), -1.0, 2.0):
        run.files.write(SIGNIFICANCE, tables.dump([row | {"p": new}], SIGNIFICANCE_SCHEMA, {}))
        assert run.significance() == {}
