"""Tests the biases that the agents of a run claim, decides which are supported, and searches for errors they cause."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from openmaia.core.units import Unit
from openmaia.evaluation.claims import read_claim
from openmaia.evaluation.language_model import UnansweredQuestion
from openmaia.recipes.bias.contexts import ClaimedContext, ContextWriter
from openmaia.recipes.bias.effects import BiasVerdict, ContextEffect, decide, estimate_effect
from openmaia.recipes.bias.failures import FailureMode, find_failures
from openmaia.recipes.bias.matched import MatchedPair, Matcher
from openmaia.recipes.bias.stored import (
    BIAS_TESTS,
    FAILURES,
    VERDICTS,
    StoredTest,
    dump_failures,
    dump_test,
    read_test,
    to_json,
)
from openmaia.runs.files import naming
from openmaia.runs.records import dumps
from openmaia.runs.run import InvestigationId, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasDesign:
    """Numbers and thresholds of the tests."""

    pairs: int = 40
    """Pairs of images for each claim."""
    smallest: float = 0.02
    """Difference of mean scores, in the claimed direction, of a supported bias."""
    rate: float = 0.05
    """False discovery rate among the tested claims of a run."""
    failures: int = 40
    """Pairs that are searched for errors of each kind, for each supported bias; 0: no search."""
    resamples: int = 2000
    seed: int = 0
    at_once: int = 1
    """Investigations that are tested concurrently, so that services receive batches of requests."""


def is_tested(run: Run) -> bool:
    """Returns whether all claims in the records of a run are tested and judged."""
    return run.done() <= run.belonging(BIAS_TESTS) and run.files.exists(VERDICTS)


def put_to_test(
    run: Run, writer: ContextWriter, matcher: Matcher, design: BiasDesign, progress: Callable[[int, int], None]
) -> list[BiasVerdict]:
    """Tests the claims of records that have no test yet, and searches for errors that the supported biases cause.

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
        tested = [measure_claim(unit, name, label, writer, matcher, design) for label in answer.labels]
        run.write_artifact(BIAS_TESTS, investigation, dump_test(answer, name, tested))

    with ThreadPoolExecutor(design.at_once) as pool:
        for done, _ in enumerate(pool.map(test, untested), start=1):
            progress(done, len(untested))
    decided = judged(run, design)
    if design.failures:
        _find_failures(run, [verdict for verdict in decided if verdict.supported], writer, matcher, design)
    run.files.write(VERDICTS, dumps([to_json(verdict) for verdict in decided]).encode())
    return decided


def measure_claim(
    unit: Unit, name: str, label: str, writer: ContextWriter, matcher: Matcher, design: BiasDesign
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
    context = ClaimedContext.parse(label)
    try:
        prompts = writer.write(name, context, design.pairs, design.seed)
    except UnansweredQuestion as error:
        return ContextEffect(context=context, outcome="unwritten", cause=error.message, writer=writer.name), []
    pairs = matcher.pairs(unit, name, prompts)
    return estimate_effect(context, pairs, name, design.resamples, writer.name), pairs


def judged(run: Run, design: BiasDesign) -> list[BiasVerdict]:
    """Returns a verdict on each tested claim of a run from the stored effects, ordered by unit."""
    tests = read_tests(run, BIAS_TESTS, light=True)
    effects = [(test.investigation, test.name, each) for test in tests for each in test.effects]
    return decide(effects, design.rate, design.smallest)


def classes_without_claim(run: Run) -> list[str]:
    """Returns the names of the classes for which the agents of a run claimed nothing."""
    return sorted({test.name for test in read_tests(run, BIAS_TESTS, light=True) if not test.effects})


def read_tests(run: Run, folder: str, *, light: bool = False) -> Iterator[StoredTest]:
    """Reads the files of BIAS_TESTS or FAILURES (`folder`) of a run, ordered by unit; with `light` without images."""
    for investigation in sorted(run.artifacts(folder)):
        data = run.artifact(folder, investigation)
        if data is not None:
            with naming(run.artifact_path(folder, investigation)):
                test = read_test(data, light=light)
            yield test


def _find_failures(
    run: Run, supported: list[BiasVerdict], writer: ContextWriter, matcher: Matcher, design: BiasDesign
) -> None:
    for investigation in sorted({verdict.investigation for verdict in supported} - run.artifacts(FAILURES)):
        own = [verdict for verdict in supported if verdict.investigation == investigation]
        modes: list[FailureMode] = []
        for verdict in own:
            with suppress(UnansweredQuestion):  # without prompts no errors are searched, but the verdict is stored
                modes += find_failures(verdict, writer, matcher, design.failures, design.seed)
        run.write_artifact(FAILURES, investigation, dump_failures(read_claim(run, investigation), own[0].name, modes))
