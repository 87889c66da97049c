"""What the commands share: their arguments, and how they end."""

import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from openmaia.cli.commands.completion import complete_config, complete_run
from openmaia.cli.signals import STOPPED
from openmaia.core.errors import UsageError
from openmaia.core.secrets import redacted
from openmaia.core.text import first_line, printable

if TYPE_CHECKING:
    from openmaia.config.schema import Config
    from openmaia.models.text_embedding import TextEmbedding
    from openmaia.runs.run import Run

ConfigSources = Annotated[
    list[str],
    typer.Argument(
        metavar="CONFIG",
        help="Names of configs (`openmaia configs`), YAML files, and key=value overrides. Later ones win.",
        autocompletion=complete_config,
    ),
]
RunPaths = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help="Run directories, such as runs/demo.", autocompletion=complete_run),
]
RunPath = Annotated[
    str, typer.Argument(metavar="RUN", help="A run directory, such as runs/demo.", autocompletion=complete_run)
]

EmbeddingOption = Annotated[
    str,
    typer.Option(
        "--embedding",
        metavar="MODEL",
        help="Find similar descriptions by this model of sentence-transformers, a name on the hub or a folder. Without it "
        "they are found by their words.",
    ),
]

SHOWN_FAILURES = 20

UNPAID = 4
"""Exit code if the budget of a run is spent and work is left."""

REPEAT = "--repeat-damaged"

RepeatFlag = Annotated[
    bool, typer.Option(REPEAT, help="Move files that cannot be read to RUN/damaged, and repeat what they held.")
]


@contextmanager
def stoppable() -> Iterator[None]:
    """Context manager that answers an interruption with how to continue, and with the exit code STOPPED."""
    try:
        yield
    except KeyboardInterrupt:
        fail("stopped; run the same command again to continue", STOPPED)


def fail(message: str, code: int) -> NoReturn:
    """Prints an error and ends the process with an exit code."""
    print(f"error: {printable(redacted(message), keep=chr(10))}", file=sys.stderr)
    raise SystemExit(code)


def print_left_out(sources: Sequence[str]) -> None:
    """Prints which keys of config files the chosen components do not use."""
    from openmaia.config.loading import find_left_out, sweep_sources

    found = {
        key: reason for each, listing in sweep_sources(sources) for key, reason in find_left_out(each, listing).items()
    }
    if found:
        print(f"not used: {', '.join(f'{key} ({reason})' for key, reason in sorted(found.items()))}")


def print_left(config: "Config") -> None:
    """Prints what is left of a run whose budget is spent, and what it would cost."""
    from openmaia.analysis.costs.left import find_left
    from openmaia.runs.run import Run

    print(find_left(Run.of(config), config.budget, is_tested=True).words, file=sys.stderr)


def print_report(paths: Sequence[str], embedding: str = "") -> None:
    """Writes the report about runs into the directory of the first one, and prints its path."""
    from openmaia.reporting.browser.write import write_report
    from openmaia.runs.run import Run

    runs = [Run.open(path) for path in paths]
    print("writing the report", flush=True)
    page: Path = write_report(runs, text_embedding(embedding))
    print(f"report: {page}")


def text_embedding(model: str) -> "TextEmbedding | None":
    """Returns the text model that --embedding names. None if `model` is empty."""
    from openmaia.models.text_embedding import load_text_embedding

    return load_text_embedding(model) if model else None


def print_failures(run: "Run") -> bool:
    """Prints the causes of failed investigations and the damaged files of a run. Returns whether there are any."""
    failures, root = run.failures(), redacted(run.files.root)
    for line in failure_lines({str(each): cause for each, cause in failures.items()}):
        print(line, file=sys.stderr)
    if failures and not run.files.names("records"):
        print(f"failed: all {len(failures)} investigations of {root}, so that it holds no description", file=sys.stderr)
    is_damaged = print_damage(run)
    return bool(failures) or is_damaged


def failure_lines(causes: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each cause of failed investigations, the most frequent first.

    Only the first SHOWN_FAILURES causes have a line. If there are more, a last line gives the number of the others.

    Args:
        causes: By the names of the units.
    """
    units: defaultdict[str, list[str]] = defaultdict(list)
    for unit, cause in causes.items():
        # The unit may be named in its cause.
        units[first_line(cause).replace(unit, "it")].append(unit)
    for cause, failed in sorted(units.items(), key=lambda item: -len(item[1]))[:SHOWN_FAILURES]:
        who = failed[0] if len(failed) == 1 else f"{len(failed)} investigations, such as {failed[0]}"
        yield f"failed: {printable(who)}: {cause}"
    if (more := len(units) - SHOWN_FAILURES) > 0:
        yield f"failed: {more} other causes (openmaia show RUN)"


def print_damage(run: "Run") -> bool:
    """Prints which files of a run are damaged or do not belong to it, and the command that computes them again.

    Returns:
        Whether there are any.
    """
    from openmaia.evaluation.damage import DAMAGED, damaged_files

    found = damaged_files(run)
    for each in found[:SHOWN_FAILURES]:
        word = "left out" if each.is_foreign else "damaged"
        print(f"{word}: {printable(each.name)}: {printable(each.reason)}", file=sys.stderr)
    if (more := len(found) - SHOWN_FAILURES) > 0:
        print(f"left out: {more} files more", file=sys.stderr)
    damaged, root = [each for each in found if not each.is_foreign], run.files.root
    if len(damaged) < len(found):
        print(
            f"left out: {len(found) - len(damaged)} stored tests of {root}, which do not belong to its records; `openmaia "
            f"evaluate {shlex.quote(root)}` tests what the records hold",
            file=sys.stderr,
        )
    if damaged:
        command = (
            "openmaia run CONFIG…"
            if any(each.is_record for each in damaged)
            else f"openmaia evaluate {shlex.quote(root)}"
        )
        print(
            f"damaged: {len(damaged)} of the files of {root}, which are left out; `{command} {REPEAT}` moves them to "
            f"{DAMAGED}/ there and repeats what they held",
            file=sys.stderr,
        )
    return bool(found)


def repeat_damaged(run: "Run", *, records: bool) -> None:
    """Moves damaged files of a run out of the way, so that their results are computed again, and prints how many.

    Args:
        records: Whether damaged records are moved, too, so that their units are investigated again.

    Raises:
        UsageError: Another command works on the run.
    """
    from openmaia.evaluation.damage import DAMAGED, damaged_files, set_aside

    damaged = [each for each in damaged_files(run) if records or not each.is_record]
    if damaged and run.is_driven(wait=True):
        raise UsageError(f"{run.files.root} is being driven by another command; wait for it, and give {REPEAT} then")
    set_aside(run, damaged)
    if damaged:
        print(f"{len(damaged)} damaged files moved to {run.files.path(DAMAGED)}; what they held is repeated")
