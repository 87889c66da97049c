"""`openmaia publish`: bundles a report for everybody."""

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from openmaia.cli.commands.common import EmbeddingOption, RunPath, print_damage, text_embedding
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.text import printable


def publish(
    path: RunPath,
    to: Annotated[str, typer.Argument(metavar="TO", help="A new folder, or hf://ORGANISATION/NAME for a Space.")],
    licence: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The licence that permits you to publish the images, such as CC-BY-4.0. Without it, images whose licence is "
            "not known or has conditions are left out.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is written or uploaded.")] = False,
    embedding: EmbeddingOption = "",
) -> None:
    """Bundles the report of a run for a static host or a Space.

    A Space is a page of the Hugging Face hub. Images are reduced. Paths, addresses and secrets of this machine are taken out, and images whose licence forbids it are
    left out and named. What it holds and its size are said before anything is written to TO.

    Examples:

    openmaia publish runs/demo site

    openmaia publish runs/demo hf://my-lab/demo
    """
    from openmaia.reporting.browser.publishing import Publication
    from openmaia.reporting.browser.spaces import HUB, make_readme, space_name, upload_space
    from openmaia.reporting.browser.write import write_publication
    from openmaia.runs.run import Run

    run = Run.open(path)
    is_space = to.startswith(HUB)
    name, folder = (space_name(to), Path()) if is_space else ("", _new_folder(to))
    publication = Publication.of_run(run, licence)
    print("publish: making the pages", flush=True)
    with tempfile.TemporaryDirectory(prefix="openmaia-publish-") as work:
        root = write_publication(run, publication, Path(work), text_embedding(embedding))
        (root / "README.md").write_text(make_readme(run, publication), encoding="utf-8")
        sizes = [each.stat().st_size for each in root.rglob("*") if each.is_file()]
        for note in publication.notes:
            print(f"publish: {printable(note)}")
        print(f"publish: {len(sizes):,} files, {sum(sizes) / 1e6:.1f} MB", flush=True)
        if not yes and not typer.confirm(f"Publish this to {printable(to)}, where others may read it?"):
            raise UsageError("nothing was published; give --yes to publish without this question")
        if is_space:
            print(f"published: {upload_space(root, name)}")
        else:
            try:
                shutil.copytree(root, folder)
            except OSError as error:
                raise UsageError(f"{folder} cannot be written ({error.strerror}); give another folder") from error
            print(f"published: {folder}")
    print_damage(run)


def _new_folder(given: str) -> Path:
    if "://" in given:
        raise UsageError(f"{given} is neither a folder of this machine nor hf://ORGANISATION/NAME")
    folder = user_path(given)
    if folder.exists():
        raise UsageError(f"{folder} exists already; give another folder, or remove it")
    return folder
