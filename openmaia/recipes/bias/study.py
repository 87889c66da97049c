"""Biases of a classifier: an agent claims for each class contexts that raise or lower its score, and each claim is tested.

The tests, as Parquet with one row per image, and the verdicts are stored in the run directory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import openmaia
from openmaia.api.runs import LoadedRun
from openmaia.assembly.models import Models
from openmaia.config.schema import Config
from openmaia.core.components import target_class
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.typed import find_mistyped
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.bootstrap import Interval
from openmaia.evaluation.claims import Claim, read_claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.recipes.bias.effects import (
    BiasVerdict,
    ContextEffect,
    FailureMode,
    decide,
    estimate_effect,
    find_failures,
)
from openmaia.recipes.bias.pairs import ClaimedContext, MatchedPair, Matcher, PairSide
from openmaia.runs import tables
from openmaia.runs.files import naming
from openmaia.runs.records import dumps
from openmaia.runs.run import InvestigationId, Run

if TYPE_CHECKING:
    from openmaia.distributed.assembly import Progress

BIAS_TESTS, FAILURES, VERDICTS = "bias", "bias-failures", "bias.json"
_VERSION = 3


def conduct(config: Config, progress: "Progress | None" = None) -> tuple[LoadedRun, list[BiasVerdict]]:
    """Lets agents look for biases, and tests those that they claim. Returns the run and a verdict on each claim.

    Raises:
        UsageError: The units of the config are no classes of a classifier.
    """
    run = openmaia.sweep(checked(config), test=BiasTest(config), progress=progress)
    return run, judged(run.run, config)


def checked(config: Config) -> Config:
    """Returns the config. Raises UsageError if its units are no classes of a classifier."""
    if reason := target_class(config.target).why_no_classes(config.target):
        raise UsageError(reason)
    return config


@dataclass(frozen=True, slots=True)
class BiasTest:
    """Implements `openmaia.api.runs.AnswerTest`."""

    config: Config

    def is_done(self, run: LoadedRun) -> bool:
        return is_tested(run.run)

    def test(self, run: LoadedRun, models: Models, progress: Callable[[int, int], None]) -> None:
        put_to_test(run.run, Matcher.of(models), self.config, progress)


def is_tested(run: Run) -> bool:
    """Returns whether all claims in the records of a run are tested and judged."""
    return run.done() <= run.belonging(BIAS_TESTS) and run.files.exists(VERDICTS)


def put_to_test(run: Run, matcher: Matcher, config: Config, progress: Callable[[int, int], None]) -> list[BiasVerdict]:
    """Tests the claims of records that have no test yet, and searches for errors that the supported biases cause.

    As many investigations are tested at once as the config allows, so that services receive batches of requests.

    Args:
        progress: Called after each record with the number of tested records and the number to test.

    Returns:
        The verdicts on all claims of the run.

    Raises:
        ServiceError: A service failed for good.
    """
    untested = sorted(run.done() - run.belonging(BIAS_TESTS))
    if untested:
        # The p-values of a run are adjusted together: new records may change any verdict, and so where errors are searched.
        run.files.delete(VERDICTS)
        run.files.delete_folder(FAILURES)
    names = matcher.target.info().classes

    def test(investigation: InvestigationId) -> None:
        unit, name = investigation.unit, names[investigation.unit.index]
        answer = read_claim(run, investigation)
        tested = [measure_claim(unit, name, label, matcher, config) for label in answer.labels]
        run.write_artifact(BIAS_TESTS, investigation, dump_test(answer, name, tested))

    with ThreadPoolExecutor(config.ray.investigations) as pool:
        for done, _ in enumerate(pool.map(test, untested), start=1):
            progress(done, len(untested))
    decided = judged(run, config)
    if config.bias.failures:
        _find_failures(run, [verdict for verdict in decided if verdict.supported], matcher, config)
    run.files.write(VERDICTS, dumps([_to_json(verdict) for verdict in decided]).encode())
    return decided


def measure_claim(
    unit: Unit, name: str, label: str, matcher: Matcher, config: Config
) -> tuple[ContextEffect, list[MatchedPair]]:
    """Tests one claim.

    Args:
        unit: The output unit of the class.
        name: The class.
        label: The claim as the agent wrote it, such as "+ snow".

    Returns:
        The effect of the context, and the pairs of images. If no prompts could be written, the effect says why, and
        there are no pairs.
    """
    context, writer = ClaimedContext.parse(label), matcher.writer.name
    try:
        pairs = matcher.pairs(unit, name, context, config.bias.pairs, config.seed)
    except UnansweredQuestion as error:
        return ContextEffect(context=context, outcome="unwritten", cause=error.message, writer=writer), []
    return estimate_effect(context, pairs, name, config.evaluate.bootstrap, writer), pairs


def judged(run: Run, config: Config) -> list[BiasVerdict]:
    """Returns a verdict on each tested claim of a run from the stored effects, ordered by unit."""
    tests = read_tests(run, BIAS_TESTS, light=True)
    effects = [(test.investigation, test.name, effect) for test in tests for effect in test.effects]
    return decide(effects, config.bias.rate, config.bias.smallest)


def classes_without_claim(run: Run) -> list[str]:
    """Returns the names of the classes for which the agents of a run claimed nothing."""
    return sorted({test.name for test in read_tests(run, BIAS_TESTS, light=True) if not test.parts})


def _find_failures(run: Run, supported: Sequence[BiasVerdict], matcher: Matcher, config: Config) -> None:
    for investigation in sorted({verdict.investigation for verdict in supported} - run.artifacts(FAILURES)):
        own = [verdict for verdict in supported if verdict.investigation == investigation]
        modes: list[FailureMode] = []
        for verdict in own:
            with suppress(UnansweredQuestion):  # without prompts no errors are searched, but the verdict is stored
                modes += find_failures(verdict, matcher, config.bias.failures, config.seed)
        run.write_artifact(FAILURES, investigation, dump_failures(read_claim(run, investigation), own[0].name, modes))


def _to_json(verdict: BiasVerdict) -> dict[str, Any]:
    effect = verdict.effect
    return {
        "unit": str(verdict.investigation.unit),
        "replicate": verdict.investigation.replicate,
        "class": verdict.name,
        "context": effect.context.label,
        "outcome": effect.outcome,
        "cause": effect.cause,
        "effect": effect.score.as_list() if effect.score else None,
        "effect_on_logit": effect.raw.as_list() if effect.raw else None,
        "p": effect.p,
        "p_adjusted": verdict.adjusted,
        "pairs": list(effect.pairs),
        "objects": effect.objects,
        "confirmed_by": list(effect.confirmed_by),
        "supported": verdict.supported,
    }


# -- stored tests --------------------------------------------------------------------------------------------------------

_SCHEMA = pa.schema(
    [
        ("part", pa.int64()),
        ("role", pa.string()),
        ("prompt", pa.string()),
        ("sources", pa.list_(pa.string())),
        ("shows_class", pa.bool_()),
        ("missing_terms", pa.list_(pa.string())),
        ("value", pa.float64()),
        ("raw", pa.float64()),
        ("predicted", pa.string()),
        ("data", pa.binary()),
    ]
)
_SAME = ("prompt", "shows_class", "missing_terms", "value", "raw", "predicted")
"""Columns that are fields of `PairSide`."""

_HEADER: dict[str, Any] = {"claim": Claim, "name": str, "parts": list[dict[str, Any]]}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTest:
    """The tests of one investigation's claims, or its failure modes."""

    investigation: InvestigationId
    name: str
    """The class."""
    parts: tuple[Mapping[str, Any], ...]
    """The fields of each ContextEffect, or of each FailureMode without its images."""
    images: tuple[tuple[PairSide, ...], ...]
    """The images of each part; of a test both sides of a pair are neighbours. Empty if they were not read."""

    @property
    def effects(self) -> tuple[ContextEffect, ...]:
        """Only of tests."""
        return tuple(map(_effect, self.parts))


def dump_test(claim: Claim, name: str, tested: Sequence[tuple[ContextEffect, Sequence[MatchedPair]]]) -> bytes:
    """Serialises the tests of the labels of a claim."""
    return _dump(
        claim,
        name,
        [asdict(effect) for effect, _ in tested],
        [
            [side for pair in pairs for side in (("with", pair.having), ("without", pair.without))]
            for _, pairs in tested
        ],
    )


def dump_failures(claim: Claim, name: str, modes: Sequence[FailureMode]) -> bytes:
    """Serialises the failure modes of one investigation."""
    facts = [asdict(replace(mode, wrong=())) for mode in modes]
    for each in facts:
        del each["wrong"]
    return _dump(claim, name, facts, [[(mode.prone, side) for side in mode.wrong] for mode in modes])


def _dump(
    claim: Claim, name: str, parts: Sequence[dict[str, Any]], images: Sequence[Sequence[tuple[str, PairSide]]]
) -> bytes:
    rows = [
        {"part": part, "role": role, "sources": side.image.sources, "data": side.image.packed().data}
        | {key: getattr(side, key) for key in _SAME}
        for part, sides in enumerate(images)
        for role, side in sides
    ]
    return tables.dump(rows, _SCHEMA, {"version": _VERSION, "claim": asdict(claim), "name": name, "parts": parts})


def read_tests(run: Run, folder: str, *, light: bool = False) -> Iterator[StoredTest]:
    """Reads the files of BIAS_TESTS or FAILURES (`folder`) of a run, ordered by unit; with `light` without images."""
    for investigation in sorted(run.artifacts(folder)):
        data = run.artifact(folder, investigation)
        if data is not None:
            with naming(run.artifact_path(folder, investigation)):
                test = read_test(data, light=light)
            yield test


def read_test(data: bytes, *, light: bool = False) -> StoredTest:
    """Reads a file of `dump_test` or `dump_failures`; with `light` without images. Raises StoreError if it is damaged
    or of another version.
    """
    rows, header = tables.load(data, "a test of a bias", ["part"] if light else None, _SCHEMA)
    if header.get("version") != _VERSION:
        raise StoreError(
            f"a test of a bias has version {header.get('version')}, and this OpenMAIA reads version {_VERSION}: remove the "
            f"folders {BIAS_TESTS}/ and {FAILURES}/ of the run to have them made again"
        )
    wrong = (key for key, hint in _HEADER.items() if key not in header or find_mistyped(header[key], hint) is not None)
    if (key := next(wrong, None)) is not None:
        raise StoreError(f"a test of a bias that lacks {key!r}, or has it with another type than OpenMAIA writes")
    parts = tuple(header["parts"])
    try:
        return StoredTest(
            investigation=InvestigationId(unit=Unit(**header["claim"]["unit"]), replicate=header["claim"]["replicate"]),
            name=header["name"],
            parts=parts,
            images=()
            if light
            else tuple(tuple(_side(row) for row in rows if row["part"] == part) for part in range(len(parts))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"a test of a bias is incomplete: {error!r}") from error


def _side(row: Mapping[str, Any]) -> PairSide:
    image = EncodedImage(data=row["data"], sources=tuple(row["sources"]))
    return PairSide(image=image, **{key: row[key] for key in _SAME})


def _effect(values: Mapping[str, Any]) -> ContextEffect:
    typed: dict[str, Any] = {
        "context": ClaimedContext(**values["context"]),
        "pairs": (values["pairs"][0], values["pairs"][1]),
        "confirmed_by": tuple(values["confirmed_by"]),
    }
    typed |= {name: Interval(**values[name]) if values[name] else None for name in ("score", "raw")}
    return ContextEffect(**{**values, **typed})
