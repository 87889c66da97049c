"""The forced choices of `openmaia evaluate --2afc-…`: people or a model choose the better of two labels of a unit."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

if TYPE_CHECKING:
    from openmaia.runs.run import Run


def write_page(runs: Sequence[str], page: Path, truth: str = "") -> None:
    """Writes an HTML page on which people choose between two labels for each unit.

    The answer key, which says where each label comes from, is written into the directory of the first run.

    Args:
        runs: Two runs whose labels are compared, or one whose labels are compared with those of other units.
        page: Must not exist.
        truth: A table of true labels, or an imported labels.jsonl, with which people compare the labels. If it is empty,
            they compare them with the top exemplars.

    Raises:
        UsageError: The file exists or cannot be written, or the runs give nothing to choose between.
    """
    from openmaia.recipes.choices.page import render_page
    from openmaia.recipes.choices.questions import add_checks, choice_pairs, make_blind, write_key

    page = user_path(str(page))
    if page.exists():
        raise UsageError(f"{page} exists, and people may be answering it; give another name for the page")
    opened = _opened(runs)
    pairs = choice_pairs(opened, _truths(opened, truth))
    questions, key = add_checks(*make_blind(pairs))
    key_path = write_key(opened[0][0], key)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(render_page(questions, key.name))
    except OSError as error:
        raise UsageError(f"{page} cannot be written ({error.strerror}); give another place for the page") from error
    print(
        f"{len(pairs.pairs)} units, {len(key.items)} questions and {len(key.checks)} attention checks: {page}\nits key, not to be handed out: {key_path}"
    )
    for reason, count in pairs.left_out.items():
        print(f"left out: {count} {reason}")


def score_files(runs: Sequence[str], paths: Sequence[Path]) -> None:
    """Prints how often people preferred each method on a page of `write_page`.

    Args:
        runs: The first one holds the answer key of the page.
        paths: The files that the page saved, one per person.

    Raises:
        UsageError: A file cannot be read, or the answers belong to different pages or to a page of another run.
    """
    from openmaia.cli.terminal.scores import show_choice
    from openmaia.recipes.choices.answers import read_answers, score_answers
    from openmaia.recipes.choices.questions import read_key

    run = _opened(runs)[0][0]
    answers = [read_answers(_bytes(path), path.name) for path in paths]
    pages = sorted({each.page for each in answers})
    if len(pages) > 1:
        raise UsageError(f"these are answers to {len(pages)} different pages; give those to one page at a time")
    key = read_key(run, pages[0])
    if key is None:
        raise UsageError(
            f"{run.files.root} made no page {pages[0][:40]!r}; give the run that --2afc-page was called with"
        )
    show_choice(score_answers(answers, key, run.config()["evaluate"]["bootstrap"]))


def ask_model(runs: Sequence[str], truth: str = "") -> None:
    """Lets the writer of the first run's config choose as people do on a page of `write_page`, and prints the result.

    Raises:
        UsageError: The config of the first run names no language model, or the model answers no question.
    """
    from openmaia.cli.terminal.scores import show_choice
    from openmaia.recipes.choices import answers
    from openmaia.recipes.choices.questions import choice_pairs, make_blind, write_key

    opened = _opened(runs)
    model = answers.language_model(opened[0][0])
    questions, key = make_blind(choice_pairs(opened, _truths(opened, truth)))
    given = answers.ask_model(questions, key.name, model)
    write_key(opened[0][0], key)
    if not given.chosen:
        raise UsageError(
            f"{model.name} answered none of {len(questions)} questions: {given.cause}; try another evaluate.writer"
        )
    show_choice(answers.score_answers([given], key, opened[0][0].config()["evaluate"]["bootstrap"]), model.name)
    if given.cause:
        print(f"{len(questions) - len(given.chosen)} questions have no answer: {given.cause}")


def _truths(runs: "Sequence[tuple[Run, str]]", path: str) -> dict[tuple[str, int], str] | None:
    from openmaia.interop.label_backbone import read_truths

    return read_truths(path, str(runs[0][0].config()["target"]["name"]), "--2afc-truth") if path else None


def _opened(paths: Sequence[str]) -> "list[tuple[Run, str]]":
    """Returns each run with a name that no other of them has."""
    from openmaia.reporting.tables import name_runs
    from openmaia.runs.run import Run

    return list(name_runs([Run.open(path) for path in paths]))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give a file that the page saved") from error
