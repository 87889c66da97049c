"""The claims of a run, tested: matched pictures for each, verdicts over all of them, failure modes of what stands."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from openmaia.apps.bias.contexts import Context, Writer
from openmaia.apps.bias.effects import Effect, Verdict, effect, verdicts
from openmaia.apps.bias.failures import failures
from openmaia.apps.bias.matched import Matcher, Pair
from openmaia.apps.bias.stored import FAILURES, TESTS, VERDICTS, Examined, dump_gallery, dump_test, plain, read_test
from openmaia.evaluate.asking import Unanswered
from openmaia.store.records import dumps
from openmaia.store.run import Owed, Run
from openmaia.units import Unit

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """pairs: matched pairs for each claimed context. smallest: difference of mean scores below which no bias is supported.
    rate: of false discoveries. failures: pairs of each kind in which failures are looked for; 0 for none. at_once: claims
    under way at once, so that pools get batches to fill."""

    pairs: int = 40
    smallest: float = 0.02
    rate: float = 0.05
    failures: int = 40
    resamples: int = 2000
    seed: int = 0
    at_once: int = 1


def is_tested(run: Run) -> bool:
    """Whether nothing is owed any more."""
    return run.done() <= run.all_beside(TESTS) and run.files.exists(VERDICTS)


def put_to_test(run: Run, writer: Writer, matcher: Matcher, design: Design, progress: Progress) -> list[Verdict]:
    """Every record gets a test, and every bias that is supported its failure modes. What is done is not done again.

    Verdicts are of all tests together: those of a run that has grown may differ from what they were. Raises
    ServiceError where a service stays dead.
    """
    owed = sorted(run.done() - run.all_beside(TESTS))
    names = matcher.target.info().classes

    def one(each: Owed) -> None:
        labels = run.record(each).labels
        tested = [claim(each.unit, names[each.unit.index], label, writer, matcher, design) for label in labels]
        run.write_beside(TESTS, each, dump_test(each, names[each.unit.index], tested))

    with ThreadPoolExecutor(design.at_once) as pool:
        for done, _ in enumerate(pool.map(one, owed), start=1):
            progress(done, len(owed))
    found = judged(run, design)
    supported = [verdict for verdict in found if verdict.supported]
    for each in sorted({verdict.owed for verdict in supported}) if design.failures else []:
        if run.beside(FAILURES, each) is None:
            its = [verdict for verdict in supported if verdict.owed == each]
            _find_failures(run, each, its, writer, matcher, design)
    run.files.write(VERDICTS, dumps([plain(verdict) for verdict in found]).encode())
    return found


def claim(
    unit: Unit, name: str, label: str, writer: Writer, matcher: Matcher, design: Design
) -> tuple[Effect, list[Pair]]:
    """One claimed context, tested."""
    context = Context.of(label)
    try:
        prompts = writer.write(name, context, design.pairs, design.seed)
    except Unanswered as error:
        return Effect(context=context, outcome="unwritten", cause=error.message, writer=writer.name), []
    pairs = matcher.pairs(unit, name, prompts)
    return effect(context, pairs, name, design.resamples, writer.name), pairs


def judged(run: Run, design: Design) -> list[Verdict]:
    tested = [(found.owed, found.name, one) for found in examined(run, light=True) for one in found.effects]
    return verdicts(tested, design.rate, design.smallest)


def examined(run: Run, *, light: bool = False) -> Iterator[Examined]:
    """In the order of the units, one in memory at a time."""
    for owed in sorted(run.all_beside(TESTS)):
        data = run.beside(TESTS, owed)
        if data is not None:
            yield read_test(data, light=light)


def _find_failures(
    run: Run, owed: Owed, supported: list[Verdict], writer: Writer, matcher: Matcher, design: Design
) -> None:
    try:
        found = [
            one for verdict in supported for one in failures(verdict, writer, matcher, design.failures, design.seed)
        ]
    except Unanswered:
        return  # without prompts there is no gallery; the verdict stands
    run.write_beside(FAILURES, owed, dump_gallery(owed, supported[0].name, found))
