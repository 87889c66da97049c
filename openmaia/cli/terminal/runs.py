"""Prints the contents of run directories and exemplar stores: states, units, turns and exemplars."""

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice

from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openmaia.analysis.conduct import AgentConduct
from openmaia.cli.terminal.costs import show_money
from openmaia.cli.terminal.descriptions import show_overlap
from openmaia.cli.terminal.effects import show_effects
from openmaia.cli.terminal.faithfulness import show_faithfulness
from openmaia.cli.terminal.output import console, say, show_table
from openmaia.cli.terminal.scores import show_methods, show_reliability, show_sizes, show_supported, show_truth
from openmaia.core.components import stored_remark
from openmaia.core.text import first_line, percent
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.findings import findings
from openmaia.evaluation.analysis.raters import krippendorff
from openmaia.evaluation.analysis.sanity import grouped_notes
from openmaia.evaluation.analysis.summary import run_scores
from openmaia.evaluation.analysis.verdict import UnitVerdict, Verdict, run_verdicts
from openmaia.evaluation.truth import read_truth
from openmaia.exemplars.store import ExemplarStore
from openmaia.reporting.tables import UnitRow, make_rows, name_runs
from openmaia.runs.claimed import with_claim_runs
from openmaia.runs.control import read_orders
from openmaia.runs.further import further_evaluations
from openmaia.runs.run import Run
from openmaia.runs.state import RunCounts, RunningInvestigation, counts
from openmaia.runs.votes import Fit, read_votes

SECONDS = 2.0
"""Seconds between two readings of a run directory that is watched."""

_SHOWN_UNITS = 40
_SHORT_NAME = 16
"""Longest name of a unit that is never broken: the other columns leave so much room in a terminal of 80 columns."""
_COUNTED = "shown base"
"""Of its top exemplars, and of random photographs: "8/10 0.06", which is narrower than elsewhere."""
_SHOWN_RUNNING = 20
"""Largest number of running investigations, and of failures, that are shown."""

READ_EVALUATIONS = 1000
"""Largest number of evaluations that are all read to show a run. If it has more, only those of shown units are read."""


def show_state(run: Run, resamples: int) -> None:
    """Prints the progress of a run, and its units with the verdicts on their descriptions.

    Also prints what else was measured: the agreement of replicates, the effects of ablating units, the match with what
    the units are known to respond to, and the comparison with other methods' descriptions of them.
    """
    state = counts(run)
    console.print(_state(run, state), highlight=False)
    if marked := read_orders(run).retries:
        names = ", ".join(each.name for each in islice(marked, _SHOWN_RUNNING))
        say(f"marked to be investigated again by `openmaia run`, {len(marked)}: {names}")
    target = run.config()["target"]
    if remark := stored_remark(target, "target"):
        say(f"{target['name']}: {remark}", dim=True)
    if state.done:
        show_units(run, resamples, overall=state.evaluated <= READ_EVALUATIONS)
        show_reliability(run)
        show_faithfulness(run)
        show_effects(run)
        if state.evaluated <= READ_EVALUATIONS:
            show_findings([(run, resamples)])
        show_money(run)
    together = list(name_runs(with_claim_runs([run])))
    show_truth(together)
    if len(together) > 1:
        show_methods(together, resamples)
    show_votes(run)
    for further in further_evaluations(run):
        say(f"further evaluation: openmaia show {shlex.quote(further.files.root)}")


def show_votes(run: Run) -> None:
    """Prints what people say of the descriptions; nothing if nobody has voted."""
    votes = read_votes(run)
    cast = [vote.fit for each in votes.by_investigation.values() for vote in each]
    if cast:
        people = {vote.person.casefold() for each in votes.by_investigation.values() for vote in each}
        counted = ", ".join(f"{cast.count(fit)} {fit}" for fit in Fit)
        alpha = krippendorff([vote.fit for vote in each] for each in votes.by_investigation.values())
        agreement = "" if alpha is None else f"; agreement between people (Krippendorff's alpha) {alpha:.2f}"
        who = f"{len(people)} {'person' if len(people) == 1 else 'people'}"
        say(f"votes of {who} on {len(votes.by_investigation)} descriptions: {counted}{agreement}")
    if votes.outdated:
        say(f"votes on descriptions that were replaced since then, not counted: {votes.outdated}", dim=True)
    for reason in votes.refused[:_SHOWN_RUNNING]:
        say(f"warning: {reason}")


def show_conduct(name: str, conduct: AgentConduct) -> None:
    """Prints counts that show how well the agents of the run `name` follow the protocol of an investigation."""
    investigations, turns, experiments = (
        max(n, 1) for n in (conduct.investigations, conduct.turns, conduct.experiments)
    )
    rows = [
        (
            "investigations",
            conduct.investigations,
            ", ".join(f"{n} {stop}" for stop, n in sorted(conduct.ended.items())),
        ),
        (
            "without a measurement",
            conduct.unmeasured,
            f"{percent(conduct.unmeasured / investigations)} of investigations",
        ),
        ("turns", conduct.turns, f"{conduct.turns / investigations:.1f} per investigation"),
        ("neither experiment nor answer", conduct.empty, f"{percent(conduct.empty / turns)} of turns"),
        ("repeated itself, cut", conduct.cut, f"{percent(conduct.cut / turns)} of turns"),
        ("answer beside an experiment", conduct.set_aside, f"{percent(conduct.set_aside / turns)} of turns"),
        ("answers sent back", conduct.sent_back, f"{conduct.sent_back / investigations:.1f} per investigation"),
        *((f"failed the loop's own test, then {what}", count, "") for what, count in conduct.rounds.items()),
        ("experiments", conduct.experiments, f"{conduct.experiments / investigations:.1f} per investigation"),
        (
            "repetitions of an earlier one or the example",
            conduct.repeated,
            f"{percent(conduct.repeated / experiments)} of experiments",
        ),
        ("tracebacks", conduct.tracebacks, f"{percent(conduct.tracebacks / experiments)} of experiments"),
        ("stopped by the sandbox", conduct.stopped, f"{percent(conduct.stopped / experiments)} of experiments"),
        ("images sent back", conduct.images, f"{conduct.images / investigations:.1f} per investigation"),
        ("prompt tokens", conduct.prompt_tokens, f"{conduct.prompt_tokens / turns:,.0f} per turn"),
        ("generated tokens", conduct.generated_tokens, f"{conduct.generated_tokens / turns:,.0f} per turn"),
        ("minutes", round(conduct.seconds / 60), f"{conduct.seconds / 60 / investigations:.1f} per investigation"),
        *(
            (f"forgiven: {what}", count, f"{percent(count / turns)} of turns")
            for what, count in conduct.forgiven.items()
        ),
    ]
    table = Table(title=Text(f"the agents of {name}"), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for what, count, share in rows:
        table.add_row(Text(what), f"{count:,}", share)
    console.print(table)


def watch(run: Run) -> None:
    """Shows the progress of a run until no process executes it any more. Ctrl-C ends the view and not the run."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_state(run, counts(run)), refresh=True)
            if not run.is_driven():
                return
            time.sleep(SECONDS)


def _state(run: Run, state: RunCounts) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"run {state.name}: {state.text}"),
        Padding(ProgressBar(total=max(state.planned, 1), completed=state.done, width=60), 0),  # It ends its line.
    ]
    if state.per_second is not None:
        parts.append(Text(f"{state.per_second * 60:.3g} investigations a minute"))
    if state.running:
        parts.append(running_table(state.running, _SHOWN_RUNNING))
    failures = islice(run.failures().items(), _SHOWN_RUNNING) if state.failed else ()
    parts += [Text(f"failed: {each.unit}: {first_line(cause)}", style="red") for each, cause in failures]
    return Group(*parts)


def running_table(running: Sequence[RunningInvestigation], shown: int) -> Table:
    """Returns a table of running investigations: the oldest ones, at most `shown` of them."""
    table = Table("running", "turn", "age", box=None, padding=(0, 2, 0, 0))
    oldest = sorted(running, key=lambda each: (-(each.seconds or 0), each.investigation))
    for each in oldest[:shown]:
        age = "interrupted" if each.seconds is None else str(timedelta(seconds=round(each.seconds)))
        table.add_row(Text(str(each.investigation)), str(each.turn), age)
    if len(running) > shown:
        table.add_row(f"{len(running) - shown} more", "", "")
    return table


_VERDICT_STYLES = {
    Verdict.SUPPORTED: "green",
    Verdict.UNDECIDED: "yellow",
    Verdict.NOT_SUPPORTED: "red",
    Verdict.ABSTAINED: "dim",
    Verdict.NOT_TESTED: "dim",
    Verdict.FAILED: "bold red",
}


def show_units(run: Run, resamples: int, *, overall: bool = True) -> None:
    """Prints units of a run with their labels, the verdict on each description, and its AUC against the worst control.

    With `overall`, the evaluations of all units are read: the units with the best verdicts are printed, and means over
    all units. Otherwise only the units that the run investigates first are printed.
    """
    state = counts(run)
    rows = make_rows(run, run.name, investigations=None if overall else run.plan()[:_SHOWN_UNITS])
    shown = sorted(rows, key=lambda row: row.rank)[:_SHOWN_UNITS]
    has_sizes = any(row.scores.get("z_positive") is not None for row in shown)
    has_counts = any(row.verdict.shown for row in shown)
    more = (*(["SD"] if has_sizes else []), *([_COUNTED] if has_counts else []))
    columns = ("unit", "verdict", "why", "labels", "against", "AUC", "low", *more)
    cells = [_cells(row, has_sizes, has_counts) for row in shown]
    is_short = all(len(row.name) <= _SHORT_NAME for row in shown)
    broken = {"verdict", "why"}
    whole = {*columns} - broken - ({"labels"} if is_short else {"unit", "labels"})
    show_table(f"run {run.name}", columns, cells, left=5, whole=whole, broken=broken, tight=has_sizes)
    if any(row.verdict.worst for row in rows):
        sizes = ". SD: mean activation on its images, in standard deviations of the dataset" if has_sizes else ""
        say(
            "AUC: against the control that the description beats least; low: the lower end of its 95 % interval. 0.5 is "
            f"chance{sizes}",
            dim=True,
        )
    if has_counts:
        say(
            "shown: how many of its top exemplars show a label; base: the share of random pictures that do. They decide no "
            "verdict",
            dim=True,
        )
    if state.planned > _SHOWN_UNITS:
        more = state.planned - _SHOWN_UNITS
        say(f"{more} units more: openmaia show {shlex.quote(run.files.root)} --json, or summary.parquet there")
    if any(row.scores.get("auc") is not None for row in shown) and (
        texts := grouped_notes(("auc", "auc_minus_other", "difference"))
    ):
        say(f"by our sanity tests {'. '.join(texts)}", dim=True)
    if not overall:
        return
    scores = run_scores(run, resamples)
    show_supported(run, scores)
    show_sizes(scores)
    show_overlap(run)
    if sizes := list(run.investigations.sizes("records").values()):
        say(f"records: {len(sizes)}, {sum(sizes) / len(sizes) / 1e6:.2f} MB per unit")


def show_findings(runs: Sequence[tuple[Run, int]]) -> None:
    """Prints what runs found, those with units of known truth first. Each run has its number of bootstrap resamples."""
    for run, resamples in sorted(runs, key=lambda each: not read_truth(each[0])):
        scores = run_scores(run, resamples)
        for each in findings(run, run_verdicts(run), scores if scores.units else None):
            sentence = each.sentence
            say(f"{run.name}: {sentence}" if len(runs) > 1 else sentence[0].upper() + sentence[1:])


def _cells(row: UnitRow, has_sizes: bool, has_counts: bool) -> list[str | Text]:
    verdict, worst, size = row.verdict, row.verdict.worst, row.scores.get("z_positive")
    name = row.stop if verdict.verdict is Verdict.NOT_TESTED else verdict.verdict.value
    return [
        row.name,
        Text(name, style=_VERDICT_STYLES[verdict.verdict]),
        verdict.why,
        "; ".join(row.header.get("labels", ()))[:60],
        worst.short if worst else "",
        f"{worst.auc:.2f}" if worst else "n/a",
        f"{worst.low:.2f}" if worst else "n/a",
        *(["n/a" if size is None else f"{size:+.1f}"] if has_sizes else []),
        *([_counts(verdict) if worst else "n/a"] if has_counts else []),
    ]


def _counts(verdict: UnitVerdict) -> str:
    if verdict.shown is None:
        return "not known"
    base = "" if verdict.shown.base is None else f"{verdict.shown.base:.2f}"
    return f"{'/'.join(map(str, verdict.shown.exemplars))} {base}".strip()


def show_exemplars(store: ExemplarStore, target: str) -> None:
    """Prints how many units of each layer have exemplars in a store, and how long reading a unit's exemplars takes."""
    table: list[list[str]] = []
    units = 0
    for layer in store.layers():
        states = store.states(layer)
        units += len(states)
        sample = sorted(states)[:: max(len(states) // 8, 1)]
        began = time.perf_counter()
        for index in sample:
            store.read(Unit(target=target, layer=layer, index=index))
        each = (time.perf_counter() - began) / max(len(sample), 1) * 1000
        occurrences = Counter(states.values())
        dead, broken = occurrences["dead"], occurrences["not finite"]
        table.append([layer, str(len(states)), str(dead), str(broken), f"{each:.1f}"])
    show_table(f"exemplars of {target}", ("layer", "units", "dead", "not finite", "ms to read a unit"), table)
    size = store.size()
    say(f"{store.files.root}: {size / 1e6:.1f} MB, {size / max(units, 1) / 1e3:.1f} kB per unit")
