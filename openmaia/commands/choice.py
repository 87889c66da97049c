"""The forced choices of `openmaia evaluate`: the page for people, their answers, and a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openmaia.commands.common import stoppable
from openmaia.errors import UsageError

if TYPE_CHECKING:
    from openmaia.store.run import Run


def write_page(runs: Sequence[str], page: Path) -> None:
    """The page where it is asked for, its key in the first run's directory."""
    from openmaia.evaluate.choice.blind import blinded, write_key
    from openmaia.evaluate.choice.page import page as rendered
    from openmaia.evaluate.choice.pairs import pairs

    if page.exists():
        raise UsageError(f"{page} is there already, and people may be answering it; give another name for the page")
    opened = _opened(runs)
    found = pairs(opened)
    asked, key = blinded(found)
    kept = write_key(opened[0][0], key)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(rendered(asked, key.name))
    except OSError as error:
        raise UsageError(f"{page} cannot be written ({error.strerror}); give another place for the page") from error
    print(f"{len(found.pairs)} units, {len(asked)} questions: {page}\nits key, not to be handed out: {kept}")
    for why, count in found.left_out.items():
        print(f"left out: {count} {why}")


def read_answers(runs: Sequence[str], paths: Sequence[Path]) -> None:
    from openmaia.evaluate.choice.blind import read_key
    from openmaia.evaluate.choice.score import read, score
    from openmaia.terminal.choice import show_choice

    run = _opened(runs)[0][0]
    answers = [read(_bytes(path), path.name) for path in paths]
    pages = sorted({one.page for one in answers})
    if len(pages) > 1:
        raise UsageError(f"these are answers to {len(pages)} different pages; give those to one page at a time")
    key = read_key(run, pages[0])
    if key is None:
        raise UsageError(
            f"{run.files.root} made no page {pages[0][:40]!r}; give the run that --2afc-page was called with"
        )
    show_choice(score(answers, key, run.config()["evaluate"]["bootstrap"]))


def ask_model(runs: Sequence[str]) -> None:
    """The model that is configured as evaluate.writer."""
    from openmaia.config import load
    from openmaia.evaluate.choice.blind import blinded, write_key
    from openmaia.evaluate.choice.judged import judged
    from openmaia.evaluate.choice.pairs import pairs
    from openmaia.evaluate.choice.score import score
    from openmaia.instruments import asker
    from openmaia.terminal.choice import show_choice

    settings = load([f"{runs[0]}/config.yaml"])
    model = asker(settings)
    if model is None:
        raise UsageError(
            "a forced choice by a model needs one that sees, and evaluate.writer.kind=rules is none; set "
            "evaluate.writer.kind and evaluate.writer.model in the run's config, or export a page for people (--2afc-page)"
        )
    opened = _opened(runs)
    asked, key = blinded(pairs(opened))
    with stoppable():
        found = judged(asked, key.name, model)
    write_key(opened[0][0], key)
    if not found.chosen:
        raise UsageError(
            f"{model.name} answered none of {len(asked)} questions: {found.cause}; try another evaluate.writer"
        )
    show_choice(score([found], key, settings.evaluate.bootstrap), model.name)
    if found.cause:
        print(f"{len(asked) - len(found.chosen)} questions have no answer: {found.cause}")


def _opened(runs: Sequence[str]) -> "list[tuple[Run, str]]":
    from openmaia.report.write import named
    from openmaia.store.run import Run

    return list(named([Run.open(path) for path in runs]))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give a file that the page saved") from error
